# SPDX-License-Identifier: Apache-2.0
# What holds the spill engine to its promise, in every mode there is. A new mode is one word here.
set(SPILL_MODES static exact fast)

# scripts/nightly.sh runs the same programs for an hour in each mode, with 6000 submissions each.
set(SPILL_SUBMISSIONS 500)
set(SPILL_STEPS 60)
if(SPILLWAY_SANITIZE) # is slow
  set(SPILL_STEPS 24)
endif()

# spill_watch_program(name target): the program of a test that starts `target` and watches it (run.h), without a test.
function(spill_watch_program name program)
  string(TOUPPER ${program} macro)
  spillway_shared(shared SOURCES run.c)
  add_executable(${name} ${name}.c ${shared})
  target_link_libraries(${name} PRIVATE test_main spillway_options)
  target_compile_definitions(${name} PRIVATE ${macro}="$<TARGET_FILE:${program}>")
  add_dependencies(${name} ${program} libspillway)
endfunction()

# spill_watch_test(name target): spillway_watch_test in each mode. Mappings wait for copies both ways, so that copies are
# made in parts, and wait for the mover between them.
function(spill_watch_test name program)
  spill_watch_program(${name} ${program})
  foreach(mode ${SPILL_MODES})
    add_test(NAME ${name}_${mode} COMMAND ${name})
    set_tests_properties(
      ${name}_${mode} PROPERTIES LABELS preload TIMEOUT 600 ENVIRONMENT
      "LD_LIBRARY_PATH=${SIM_FOLDER};SIM_MAP_WAITS=3;TEST_PRELOAD=${PRELOAD};SPILL_MODE=${mode};SPILL_SUBMISSIONS=${SPILL_SUBMISSIONS};SPILL_STEPS=${SPILL_STEPS}")
  endforeach()
endfunction()

# ---- made-up programs, every byte checked ----
add_executable(spill_random spill_random.c ${MADE_UP} random_block.c random_context.c random_crowd.c random_graph.c
                            random_hidden.c random_kernel.c random_op.c random_texture.c)
set_target_properties(spill_random PROPERTIES ENABLE_EXPORTS ON)
target_link_libraries(spill_random PRIVATE sim_cuda spillway_cuda spillway_options pthread dl)
target_include_directories(spill_random PRIVATE ${CMAKE_SOURCE_DIR})
target_compile_definitions(spill_random PRIVATE __CUDA_API_VERSION_INTERNAL)
# Each of its tests in each mode.
spill_watch_program(spill_random_test spill_random)
target_compile_definitions(spill_random_test PRIVATE ON_USE_POLICY="${CMAKE_CURRENT_SOURCE_DIR}/on_use.yaml")
foreach(part RANGE 1 10)
  foreach(mode ${SPILL_MODES})
    add_test(NAME spill_random_test_${part}_${mode} COMMAND spill_random_test)
    set_tests_properties(
      spill_random_test_${part}_${mode} PROPERTIES LABELS preload TIMEOUT 600 ENVIRONMENT
      "LD_LIBRARY_PATH=${SIM_FOLDER};TEST_PRELOAD=${PRELOAD};SPILL_MODE=${mode};TEST_PART=${part};SPILL_SUBMISSIONS=${SPILL_SUBMISSIONS}")
  endforeach()
endforeach()

# With textures, whose memory no launch names; and where the driver maps nothing for a while.
function(spill_random_in_trouble name mode options)
  add_test(NAME ${name} COMMAND spill_random --seed 3 --threads 1 --bytes 64 --no-hidden ${options})
  set_tests_properties(
    ${name} PROPERTIES LABELS preload TIMEOUT 600 ENVIRONMENT
    "LD_LIBRARY_PATH=${SIM_FOLDER};LD_PRELOAD=${PRELOAD};SIM_FILL=0;SPILLWAY_SET=device.budget=24MiB,host.budget=256MiB,spill.mode=${mode},report.summary=no;${ARGN}")
endfunction()
spill_random_in_trouble(spill_random_textures fast "--submissions;800;--textures")
foreach(mode exact fast)
  spill_random_in_trouble(spill_random_refused_${mode} ${mode} "--submissions;300" SIM_FAIL_THREAD=spillway-mover:2000:300)
endforeach()

# The mode changes all the time, from outside. Each mode is begun in once, and with pieces of many lengths;
# TROUBLE_MODES_LEAST changes to each are made.
foreach(seed 1 2 3 4)
  list(GET SPILL_MODES -1 mode)
  math(EXPR odd "${seed} % 2")
  set(chunk auto)
  if(odd)
    set(mode exact)
  endif()
  if(seed GREATER 2)
    set(chunk 128MiB)
  endif()
  math(EXPR budget "24 * ${seed}")
  add_test(NAME spill_random_changing_${seed}
           COMMAND spill_random --seed ${seed} --submissions ${SPILL_SUBMISSIONS} --threads ${seed} --no-hidden --trouble mode)
  set_tests_properties(
    spill_random_changing_${seed} PROPERTIES LABELS preload TIMEOUT 600 ENVIRONMENT
    "LD_LIBRARY_PATH=${SIM_FOLDER};LD_PRELOAD=${PRELOAD};SIM_FILL=0;SIM_MAP_WAITS=3;TROUBLE_MODES_LEAST=2;SPILLWAY_SET=device.budget=${budget}MiB,heap.chunk=${chunk},host.budget=256MiB,spill.mode=${mode},report.summary=no")
endforeach()

# ---- the demo's job ----
spill_watch_test(spill_job_test train_sim)

# spill_mode_test(name more.c ... [MODES mode ...]): a program under the library (child.h, scene.h) in each mode, or in
# those that are named.
function(spill_mode_test name)
  cmake_parse_arguments(T "" "" "MODES" ${ARGN})
  if(NOT T_MODES)
    set(T_MODES ${SPILL_MODES})
  endif()
  preload_program(${name} SOURCES ${name}.c ${T_UNPARSED_ARGUMENTS} scene.c child.c)
  foreach(mode ${T_MODES})
    spillway_preload_run(${name}_${mode} ${name} ENVIRONMENT SPILL_MODE=${mode})
    set_tests_properties(${name}_${mode} PROPERTIES TIMEOUT 600)
  endforeach()
endfunction()

# The same for what is about moving: in `static` nothing moves once it has a place.
function(spill_moving_test)
  spill_mode_test(${ARGN} MODES exact fast)
endfunction()

# ---- nothing that runs natively may hang ---- first natively, with nothing preloaded but a sanitizer's runtime
spill_mode_test(hold_test)
add_test(NAME hold_test_native COMMAND hold_test)
set_tests_properties(hold_test_native PROPERTIES LABELS preload TIMEOUT 600 ENVIRONMENT
                     "LD_LIBRARY_PATH=${SIM_FOLDER};SPILL_MODE=native")

# ---- a context ends while the mover is in it, and the process was stopped meanwhile ----
spill_mode_test(park_test)
set_target_properties(park_test PROPERTIES ENABLE_EXPORTS ON) # its own clock_gettime, for everybody

# ---- a child that no handler of fork() is told of, while the gate is closed ----
spill_mode_test(clone_test)

# ---- what one GPU runs and what another one moves ----
spill_mode_test(peer_apart_test)

# ---- what goes on while memory that was lent comes back ----
spill_moving_test(recall_test figures_help.c folder.c)

# ---- a CUDA-aware MPI, one rank a GPU ---- natively first, too
spill_mode_test(mpi_test mpi.c mpi_memory.c folder.c)
target_compile_definitions(mpi_test PRIVATE MPI_POLICY="${CMAKE_CURRENT_SOURCE_DIR}/mpi.yaml")
add_test(NAME mpi_test_native COMMAND mpi_test)
set_tests_properties(mpi_test_native PROPERTIES LABELS preload TIMEOUT 600 ENVIRONMENT
                     "LD_LIBRARY_PATH=${SIM_FOLDER};SPILL_MODE=native")

# ---- the time of day is set back ----
spill_mode_test(clock_test)
set_target_properties(clock_test PROPERTIES ENABLE_EXPORTS ON) # its own clock_gettime, for everybody

# ---- threads with small stacks ---- a sanitizer's frames are larger
if(NOT SPILLWAY_SANITIZE)
  spill_mode_test(stack_test folder.c)
  target_compile_definitions(stack_test PRIVATE STACK_POLICY="${CMAKE_CURRENT_SOURCE_DIR}/stack.yaml")
endif()

# ---- what nobody foresaw, and what nobody can foresee yet ----
spill_mode_test(surprise_test)

spill_mode_test(first_test typed_alloc_help.c)

# ---- what is made while nothing is free ----
spillway_preload_test(new_block_test SOURCES new_block_test.c scene.c child.c)

# ---- large allocations in stream order share blocks ----
spill_mode_test(segments_test figures_help.c folder.c)

# ---- memory that is taken when it is used ----
foreach(name on_use on_use_edge on_use_reach)
  spill_mode_test(${name}_test on_use_help.c figures_help.c folder.c)
endforeach()
set_property(SOURCE on_use_help.c APPEND PROPERTY COMPILE_DEFINITIONS ON_USE_POLICY="${CMAKE_CURRENT_SOURCE_DIR}/on_use.yaml")

# ---- managed memory on the heap ----
add_library(early_signal SHARED early_signal.c)
target_link_libraries(early_signal PRIVATE spillway_options)
foreach(name managed_heap managed_late managed_random managed_rules managed_touch managed_results managed_pages)
  spill_mode_test(${name}_test figures_help.c folder.c)
  target_compile_definitions(${name}_test PRIVATE MANAGED_POLICY="${CMAKE_CURRENT_SOURCE_DIR}/managed_heap.yaml")
endforeach()
target_link_libraries(managed_late_test PRIVATE early_signal)
set_target_properties(managed_pages_test PROPERTIES ENABLE_EXPORTS ON) # its own pthread_mutex_unlock, for everybody

# ---- a device that others fill ----
spill_mode_test(full_test)

# ---- how far a pointer reaches ----
spill_moving_test(reach_test slow_clock.c)
set_target_properties(reach_test PROPERTIES ENABLE_EXPORTS ON) # its own clock, for everybody
spill_moving_test(patience_test slow_clock.c)
set_target_properties(patience_test PROPERTIES ENABLE_EXPORTS ON) # its own clock, for everybody
spill_mode_test(gather_test)
spill_moving_test(part_test)
spill_mode_test(keep_test)
preload_library(keep_library keep_library.c)
set_target_properties(keep_library PROPERTIES PREFIX "" OUTPUT_NAME libcufft SUFFIX .so.12)
target_compile_definitions(keep_test PRIVATE KEEP_LIBRARY="$<TARGET_FILE:keep_library>")
add_dependencies(keep_test keep_library)

# ---- what a launch is asked for while nothing moves ----
spill_mode_test(proof_test)

# ---- kernels that overlap ----
spill_mode_test(overlap_test figures_help.c folder.c)

# ---- contexts that have ended, and that end beside moves ----
spill_mode_test(past_test)

# ---- failures in the middle of moves ----
# Some 100 programs in each mode, one after another, which wait more than they work: in parts, by the names of calls. By day
# the first call of each name fails.
set(FAULT_SHARDS 12)
set(FAULT_SHARDS_OF_FIRST 6)
preload_program(spill_fault_test SOURCES spill_fault_test.c fault_help.c scene.c child.c)
function(spill_fault_tests name n_shards calls)
  foreach(mode ${ARGN})
    foreach(shard RANGE 1 ${n_shards})
      spillway_preload_run(${name}_${mode}_${shard} spill_fault_test ENVIRONMENT SPILL_MODE=${mode} FAULT_CALLS=${calls}
                           FAULT_SHARD=${shard}/${n_shards})
      set_tests_properties(${name}_${mode}_${shard} PROPERTIES TIMEOUT 600)
    endforeach()
  endforeach()
endfunction()
spill_fault_tests(spill_fault_first_test ${FAULT_SHARDS_OF_FIRST} 1 exact fast)
spill_fault_tests(spill_fault_test ${FAULT_SHARDS} 2 ${SPILL_MODES})
spill_moving_test(spill_lasting_test fault_help.c)

# ---- what must not move does not ----
spill_mode_test(pin_test)
target_compile_definitions(pin_test PRIVATE PIN_POLICY="${CMAKE_CURRENT_SOURCE_DIR}/pin.yaml")

# ---- what the program itself asks for ----
spill_mode_test(typed_alloc_test typed_alloc_help.c)
spill_mode_test(discard_test typed_alloc_help.c)
spill_moving_test(born_test typed_alloc_help.c figures_help.c folder.c)

# ---- what an allocator reports about its tensors ---- libraries with PyTorch's names, opened as Python opens them
add_library(fake_c10 SHARED fake_c10.c)
add_library(fake_torch SHARED fake_torch.c fake_torch_block.c)
set_target_properties(fake_c10 PROPERTIES OUTPUT_NAME c10)
set_target_properties(fake_torch PROPERTIES OUTPUT_NAME c10_cuda)
foreach(library fake_c10 fake_torch)
  target_include_directories(${library} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${library} PRIVATE spillway_options spillway_cuda)
  target_compile_definitions(${library} PRIVATE __CUDA_API_VERSION_INTERNAL)
endforeach()
target_link_libraries(fake_torch PRIVATE fake_c10 cudart_site sim_cuda pthread -Wl,--no-as-needed -lgcc_s)
add_library(fake_torch_cpu SHARED fake_torch_cpu.c)
set_target_properties(fake_torch_cpu PROPERTIES OUTPUT_NAME torch_cpu)
target_link_libraries(fake_torch_cpu PRIVATE spillway_options pthread)
add_library(fake_torch_open OBJECT fake_torch_open.c)
target_include_directories(fake_torch_open PRIVATE ${CMAKE_SOURCE_DIR})
target_link_libraries(fake_torch_open PRIVATE spillway_options spillway_cuda)
target_compile_definitions(fake_torch_open PRIVATE __CUDA_API_VERSION_INTERNAL FAKE_C10="$<TARGET_FILE:fake_c10>"
                           FAKE_C10_CUDA="$<TARGET_FILE:fake_torch>")
foreach(test lifetimes_test lifetimes_late_test given_back_test expandable_test)
  spill_mode_test(${test} torch_help.c typed_alloc_help.c figures_help.c folder.c $<TARGET_OBJECTS:fake_torch_open>)
  add_dependencies(${test} fake_torch)
endforeach()
spill_mode_test(lifetimes_unmapped_test torch_help.c typed_alloc_help.c figures_help.c folder.c
                $<TARGET_OBJECTS:fake_torch_open> MODES fast)
add_dependencies(lifetimes_unmapped_test fake_torch)
foreach(test newborn_test suspend_beside_test suspend_dead_test suspend_map_test)
  spill_moving_test(${test} torch_help.c typed_alloc_help.c figures_help.c folder.c $<TARGET_OBJECTS:fake_torch_open>)
  add_dependencies(${test} fake_torch)
endforeach()
# Made-up programs with twice the budget.
add_executable(torch_random torch_random.c torch_random_op.c torch_random_tensor.c torch_random_birth.c
                            torch_random_graph.c torch_random_pool.c ${MADE_UP} $<TARGET_OBJECTS:fake_torch_open>)
set_target_properties(torch_random PROPERTIES ENABLE_EXPORTS ON)
target_link_libraries(torch_random PRIVATE sim_cuda spillway_cuda spillway_options pthread)
target_include_directories(torch_random PRIVATE ${CMAKE_SOURCE_DIR})
target_compile_definitions(torch_random PRIVATE __CUDA_API_VERSION_INTERNAL)
add_dependencies(torch_random libspillway fake_torch)
set(TORCH_OPERATIONS 2500)
math(EXPR TORCH_DEADLINE "100 * ${TEST_SLOWNESS}")
if(SPILLWAY_SANITIZE) # is slow
  set(TORCH_OPERATIONS 600)
endif()
function(torch_random_test name seed)
  cmake_parse_arguments(T "" "" "OPTIONS" ${ARGN})
  add_test(NAME ${name} COMMAND torch_random --seed ${seed} --operations ${TORCH_OPERATIONS} --deadline ${TORCH_DEADLINE}
                                             ${T_OPTIONS})
  set_tests_properties(${name} PROPERTIES LABELS preload TIMEOUT 600 ENVIRONMENT
                       "LD_LIBRARY_PATH=${SIM_FOLDER};SIM_MEMORY=512MiB;SIM_FILL=0;SIM_MAP_WAITS=3;${T_UNPARSED_ARGUMENTS}")
endfunction()
foreach(seed 1 2) # with budgets that most of what the allocator keeps does not fit into, and of half of it
  math(EXPR budget "40 * ${seed} - 16")
  torch_random_test(torch_random_${seed}_native ${seed})
  foreach(mode ${SPILL_MODES})
    torch_random_test(torch_random_${seed}_${mode} ${seed} "LD_PRELOAD=${PRELOAD}"
                      "SPILLWAY_SET=device.budget=${budget}MiB,host.budget=512MiB,spill.mode=${mode},report.summary=no")
  endforeach()
endforeach()
# The mode changes all the time, from outside.
torch_random_test(torch_random_changing 1 "LD_PRELOAD=${PRELOAD}" TROUBLE_MODES_LEAST=2
                  "SPILLWAY_SET=device.budget=24MiB,host.budget=512MiB,spill.mode=exact,report.summary=no"
                  OPTIONS --trouble mode)
torch_random_test(torch_on_use_changing 1 "LD_PRELOAD=${PRELOAD}" TROUBLE_MODES_LEAST=2
                  "SPILLWAY_POLICY=${CMAKE_CURRENT_SOURCE_DIR}/on_use.yaml"
                  "SPILLWAY_SET=device.budget=24MiB,host.budget=512MiB,spill.mode=exact,report.summary=no"
                  OPTIONS --trouble mode)
torch_random_test(torch_expandable_changing 2 "LD_PRELOAD=${PRELOAD}" TROUBLE_MODES_LEAST=2
                  "SPILLWAY_SET=device.budget=32MiB,host.budget=512MiB,spill.mode=fast,vmm.spill=move,report.summary=no"
                  OPTIONS --expandable 2 --trouble mode)
torch_random_test(torch_suspend_changing 3 "LD_PRELOAD=${PRELOAD}" TROUBLE_MODES_LEAST=2
                  "SPILLWAY_SET=device.budget=48MiB,host.budget=512MiB,spill.mode=exact,report.summary=no"
                  OPTIONS --suspend 30 --operations 1000 --trouble mode)
# The same where segments get memory as tensors in them are used: the smallest ones are 2 MiB, and have it at once.
foreach(mode ${SPILL_MODES})
  torch_random_test(torch_on_use_${mode} 1 "LD_PRELOAD=${PRELOAD}"
                    "SPILLWAY_POLICY=${CMAKE_CURRENT_SOURCE_DIR}/on_use.yaml"
                    "SPILLWAY_SET=device.budget=24MiB,host.budget=512MiB,spill.mode=${mode},report.summary=no")
endforeach()
# The same with expandable segments, whose handles the library serves.
foreach(seed 1 2)
  math(EXPR budget "40 * ${seed} - 16")
  math(EXPR handle "2 * ${seed}")
  torch_random_test(torch_expandable_${seed}_native ${seed} OPTIONS --expandable ${handle})
  foreach(mode ${SPILL_MODES})
    torch_random_test(torch_expandable_${seed}_${mode} ${seed} "LD_PRELOAD=${PRELOAD}"
                      "SPILLWAY_SET=device.budget=${budget}MiB,host.budget=512MiB,spill.mode=${mode},vmm.spill=move,report.summary=no"
                      OPTIONS --expandable ${handle})
  endforeach()
endforeach()
# Kernels find in device memory where they write. With two budgets, and suspensions that only one thread's work meets.
torch_random_test(torch_hidden_native 1 OPTIONS --hidden)
torch_random_test(torch_hidden_exact 1 "LD_PRELOAD=${PRELOAD}"
                  "SPILLWAY_SET=device.budget=24MiB,host.budget=512MiB,spill.mode=exact,report.summary=no" OPTIONS --hidden)
torch_random_test(torch_hidden_suspend 2 "LD_PRELOAD=${PRELOAD}"
                  "SPILLWAY_SET=device.budget=160MiB,host.budget=512MiB,spill.mode=exact,report.summary=no"
                  OPTIONS --hidden --suspend 15 --operations 1000 --threads 1)
torch_random_test(torch_hidden_expandable 4 "LD_PRELOAD=${PRELOAD}"
                  "SPILLWAY_SET=device.budget=160MiB,host.budget=256MiB,spill.mode=exact,vmm.spill=move,report.summary=no"
                  OPTIONS --hidden --expandable 4 --suspend 40 --operations 500 --threads 1)
# With room for everything: nothing spills before the first suspension.
foreach(mode exact fast)
  foreach(contents alive poison)
    torch_random_test(torch_suspend_${mode}_${contents} 3 "LD_PRELOAD=${PRELOAD}"
                      "SPILLWAY_SET=device.budget=160MiB,host.budget=512MiB,spill.mode=${mode},contents=${contents},report.summary=no"
                      OPTIONS --suspend 15 --operations 1000)
  endforeach()
  torch_random_test(torch_suspend_expandable_${mode} 4 "LD_PRELOAD=${PRELOAD}"
                    "SPILLWAY_SET=device.budget=32MiB,host.budget=512MiB,spill.mode=${mode},vmm.spill=move,report.summary=no"
                    OPTIONS --suspend 100 --expandable 4)
endforeach()

# ---- memory that the program makes itself ---- natively first. VMM_SPILL is what the policy says of it; where that is not
# `move`, the modes make no difference to it.
# LARGE_PAGES: what these compare with lies in large blocks of malloc(): half of their time would be page faults. Not under an
# emulator with pages of 64 KiB: its break does not begin at a page, and glibc 2.36 then ends the program.
set(LARGE_PAGES "GLIBC_TUNABLES=glibc.malloc.hugetlb=1")
if(SPILLWAY_EMULATED)
  set(LARGE_PAGES "GLIBC_TUNABLES=")
endif()
set(VIRTUAL_KINDS static-move exact-move fast-move exact-no)
function(virtual_mode_tests name)
  foreach(kind ${VIRTUAL_KINDS})
    string(REPLACE "-" ";" words ${kind})
    list(GET words 0 mode)
    list(GET words 1 spill)
    spillway_preload_run(${name}_${mode}_${spill} ${name}
                         ENVIRONMENT SPILL_MODE=${mode} VMM_SPILL=${spill} ${LARGE_PAGES})
    set_tests_properties(${name}_${mode}_${spill} PROPERTIES TIMEOUT 600)
  endforeach()
endfunction()
foreach(name vmm_test vmm_work_test vmm_reach_test)
  preload_program(${name} SOURCES ${name}.c vmm_help.c child.c)
  add_test(NAME ${name}_native COMMAND ${name})
  set_tests_properties(${name}_native PROPERTIES LABELS preload TIMEOUT 300 ENVIRONMENT
                       "LD_LIBRARY_PATH=${SIM_FOLDER};SPILL_MODE=native;${LARGE_PAGES}")
  virtual_mode_tests(${name})
endforeach()
preload_program(vmm_job_test SOURCES vmm_job_test.c vmm_help.c figures_help.c folder.c child.c)
virtual_mode_tests(vmm_job_test)
preload_program(vmm_move_test SOURCES vmm_move_test.c vmm_help.c child.c)
foreach(mode ${SPILL_MODES})
  spillway_preload_run(vmm_move_test_${mode} vmm_move_test ENVIRONMENT SPILL_MODE=${mode} VMM_SPILL=move)
endforeach()
# Made-up programs with twice the budget.
add_executable(vmm_random vmm_random.c vmm_random_memory.c vmm_random_op.c vmm_random_known.c vmm_random_ask.c
                          vmm_random_grow.c ${MADE_UP})
set_target_properties(vmm_random PROPERTIES ENABLE_EXPORTS ON)
target_link_libraries(vmm_random PRIVATE preload_driver)
target_include_directories(vmm_random PRIVATE ${CMAKE_SOURCE_DIR})
target_compile_definitions(vmm_random PRIVATE __CUDA_API_VERSION_INTERNAL)
add_dependencies(vmm_random libspillway)
set(VIRTUAL_OPERATIONS 800) # nightly.sh: 3000
math(EXPR VIRTUAL_DEADLINE "100 * ${TEST_SLOWNESS}")
if(SPILLWAY_SANITIZE) # is slow
  set(VIRTUAL_OPERATIONS 300)
endif()
function(vmm_random_test name seed)
  cmake_parse_arguments(T "" "" "OPTIONS" ${ARGN})
  add_test(NAME ${name} COMMAND vmm_random --seed ${seed} --operations ${VIRTUAL_OPERATIONS} --deadline ${VIRTUAL_DEADLINE}
                                           ${T_OPTIONS})
  set_tests_properties(${name} PROPERTIES LABELS preload TIMEOUT 600 ENVIRONMENT
                       "LD_LIBRARY_PATH=${SIM_FOLDER};SIM_MEMORY=128MiB;SIM_FILL=0;SIM_MAP_WAITS=3;${T_UNPARSED_ARGUMENTS}")
endfunction()
# What it does besides (--also): memory that others know, questions, mappings that must be refused, growth.
set(ALSO known,ask,stray,grow)
vmm_random_test(vmm_random_also_native 5 SIM_MEMORY=256MiB OPTIONS --also ${ALSO} --operations 400)
foreach(mode exact fast)
  vmm_random_test(
    vmm_random_also_${mode} 5 "LD_PRELOAD=${PRELOAD}" SIM_MEMORY=256MiB
    "SPILLWAY_POLICY=${CMAKE_CURRENT_SOURCE_DIR}/vmm_random.yaml"
    "SPILLWAY_SET=device.budget=32MiB,host.budget=192MiB,spill.mode=${mode},vmm.spill=move,async.use=heap,report.summary=no"
    OPTIONS --also ${ALSO} --operations 400)
endforeach()
# The mode changes all the time, from outside.
function(vmm_random_changing_test seed mode)
  vmm_random_test(
    vmm_random_changing_${seed} ${seed} "LD_PRELOAD=${PRELOAD}" TROUBLE_MODES_LEAST=1
    "SPILLWAY_SET=device.budget=32MiB,host.budget=96MiB,spill.mode=${mode},vmm.spill=move,report.summary=no"
    OPTIONS --trouble mode)
endfunction()
vmm_random_changing_test(1 exact)
vmm_random_changing_test(3 fast)
foreach(seed 1 2)
  vmm_random_test(vmm_random_${seed}_native ${seed})
  foreach(kind ${VIRTUAL_KINDS})
    string(REPLACE "-" ";" words ${kind})
    list(GET words 0 mode)
    list(GET words 1 spill)
    vmm_random_test(
      vmm_random_${seed}_${mode}_${spill} ${seed} "LD_PRELOAD=${PRELOAD}"
      "SPILLWAY_SET=device.budget=32MiB,host.budget=96MiB,spill.mode=${mode},vmm.spill=${spill},report.summary=no")
  endforeach()
endforeach()

# ---- graphs that are given other memory ----
spill_mode_test(regraph_test regraph_help.c)
spill_moving_test(regraph_moves_test regraph_help.c)

# ---- a graph that names more than the budget ----
spill_moving_test(graph_uses_test)

# ---- what others ask for when the device is full ----
spill_mode_test(oom_retry_test slow_clock.c figures_help.c folder.c)
set_target_properties(oom_retry_test PROPERTIES ENABLE_EXPORTS ON) # its own clock, for everybody

# ---- beside memory outside the heap ----
spill_mode_test(pools_test)
spill_mode_test(home_mix_test)
target_compile_definitions(home_mix_test PRIVATE HOMES_POLICY="${CMAKE_CURRENT_SOURCE_DIR}/homes.yaml")

# ---- what a stop says; drivers that are too old ----
# The simulated driver as it was before it could record an event for a whole context (CUDA 12.4).
set(OLD_FOLDER ${CMAKE_CURRENT_BINARY_DIR}/sim-12.4)
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/sim-12.4.map CONTENT "{ global: *; local: cuCtxRecordEvent; };\n")
add_library(sim_cuda_12_4 SHARED $<TARGET_OBJECTS:sim_cuda>)
set_target_properties(sim_cuda_12_4 PROPERTIES LINKER_LANGUAGE C)
target_link_options(sim_cuda_12_4 PRIVATE -Wl,-Bsymbolic
                    -Wl,--version-script=${CMAKE_CURRENT_BINARY_DIR}/sim-12.4.map)
target_link_libraries(sim_cuda_12_4 PRIVATE spillway_options spillway_cuda pthread dl)
set_target_properties(sim_cuda_12_4 PROPERTIES OUTPUT_NAME cuda VERSION 1 SOVERSION 1
                      LIBRARY_OUTPUT_DIRECTORY ${OLD_FOLDER})
preload_program(stopper SOURCES stopper.c scene.c child.c)
spill_watch_test(spill_stop_test stopper)
target_compile_definitions(spill_stop_test PRIVATE OLD_DRIVER="${OLD_FOLDER}")
add_dependencies(spill_stop_test sim_cuda_12_4)

# ---- the trace ----
preload_program(tracer SOURCES tracer.c scene.c child.c LIBRARIES trace_reader)
spill_watch_test(trace_test tracer)
target_sources(trace_test PRIVATE trace_help.c)
target_link_libraries(trace_test PRIVATE trace_reader)
preload_program(torch_traced SOURCES torch_traced.c torch_help.c typed_alloc_help.c figures_help.c folder.c
                                     $<TARGET_OBJECTS:fake_torch_open> scene.c child.c)
spill_watch_test(torch_trace_test torch_traced)
target_sources(torch_trace_test PRIVATE trace_help.c)
target_link_libraries(torch_trace_test PRIVATE spillway_replay)
add_dependencies(torch_trace_test fake_torch)

# ---- a night of it ---- cmake --build BUILD --target nightly; scripts/nightly.sh says what may be asked for
list(JOIN SPILL_MODES " " SPILL_MODES_TEXT)
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/spill_modes CONTENT "${SPILL_MODES_TEXT}\n")
add_custom_target(nightly COMMAND ${CMAKE_SOURCE_DIR}/scripts/nightly.sh ${CMAKE_BINARY_DIR} USES_TERMINAL
                  DEPENDS spill_random peer_random vmm_random torch_random ipc_random spill_fault_test libspillway sim_cuda)
# Programs that once failed are run again as they were.
add_test(NAME random_seeds_test COMMAND ${CMAKE_SOURCE_DIR}/scripts/nightly.sh ${CMAKE_BINARY_DIR} -r
                                        ${CMAKE_CURRENT_SOURCE_DIR}/random.seeds)
set_tests_properties(random_seeds_test PROPERTIES LABELS preload TIMEOUT 600 ENVIRONMENT
                     "PRELOAD=${PRELOAD};ASAN_OPTIONS=detect_leaks=0")

# ---- launches that are checked ---- libgcc_s: by it the library is found that launches
preload_program(checked_test SOURCES checked_test.c child.c)
target_link_libraries(checked_test PRIVATE -Wl,--no-as-needed -lgcc_s)
spillway_preload_run(checked_test checked_test)
add_executable(checked_job checked_job.c child.c)
target_link_libraries(checked_job PRIVATE preload_driver -Wl,--no-as-needed -lgcc_s)
add_test(NAME checked_script_test COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/checked_test.sh ${CMAKE_SOURCE_DIR}
                                          ${CMAKE_BINARY_DIR} $<TARGET_FILE:checked_job>)
set_tests_properties(checked_script_test PROPERTIES LABELS preload TIMEOUT 300 ENVIRONMENT "LD_LIBRARY_PATH=${SIM_FOLDER}")

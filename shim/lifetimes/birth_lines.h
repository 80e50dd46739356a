/*
 * birth_lines.h: at which line of the program each tensor is born (call_site_of_tensor), within a share of the time.
 *
 * A training step makes the same tensors in the same order as the one before, and PyTorch's allocator gives them the
 * same addresses. So a birth is recognized by its range and by those of the two births before it on its thread, and has
 * the line that was found when this was seen for the first time. The range alone does not tell: an activation and a
 * gradient of one step often have the same. Now and then it is looked again.
 *
 * Naming may take 1/125 of the time, and 20 ms that were saved, of the CPU, whatever the program does; births that are
 * recognized cost no time of it. Small tensors, of which hardly anything moves, are named while half of what may be
 * saved is there. A birth that is neither recognized nor named has no line.
 *
 * Measured (naming_bench.py, x86-64, in a virtual machine): 7 ns a birth that is recognized, 50 to 130 one that is left
 * out. Measured (GPT of 16 layers, H200): 1,430 births a step of 70 ms; of their bytes 0.2 % are of tensors below 4 MiB.
 *
 * Locking: none, and none of the loader. No call of the driver. A line that is new takes memory (malloc), once.
 */
#ifndef SPILLWAY_BIRTH_LINES_H
#define SPILLWAY_BIRTH_LINES_H

#include <stdint.h>

/*
 * A tensor is born by this thread. Returns the number of its site (call_site_numbered); 0: not known. Afterwards
 * birth_lines_at() returns it.
 */
unsigned birth_lines_name(uint64_t address, uint64_t bytes);
/*
 * Returns the site of the latest birth that covered this byte or more than half of its unit (live_map.h); 0: not known.
 * It may be that of a tensor that has died.
 */
unsigned birth_lines_at(uint64_t address);

#endif

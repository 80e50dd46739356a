# SPDX-License-Identifier: Apache-2.0
# The .deb and the .rpm, by CPack. scripts/packages.sh configures with SPILLWAY_PACKAGE=DEB or RPM and calls cpack; without
# it nothing of this is there. What is installed is what `make install` installs, with the demo and what
# scripts/package/finish.sh adds.
set(SPILLWAY_CONTACT "Spillway maintainers <spillway@localhost.localdomain>" CACHE STRING
    "name <address> of whoever makes and answers for the package")
install(CODE "execute_process(COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/scripts/package/finish.sh
  \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\" ${SPILLWAY_PACKAGE} ${PROJECT_VERSION} \"${SPILLWAY_CONTACT}\"
  RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR \"scripts/package/finish.sh failed\")
endif()")

set(CPACK_GENERATOR ${SPILLWAY_PACKAGE})
set(CPACK_PACKAGE_NAME spillway)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT ${SPILLWAY_CONTACT})
set(CPACK_PACKAGE_VENDOR "Spillway maintainers")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
                                                WORLD_READ WORLD_EXECUTE)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "run CUDA programs that need more memory than the GPU has")
set(SPILLWAY_DESCRIPTION
    "Spillway is a library that is put in front of a program with LD_PRELOAD, and a"
    "command that does so. Memory that fits a budget is device memory as usual. The"
    "rest lies in pinned host memory at ordinary GPU addresses, and is moved to the"
    "device where it is used. The program goes on where it would have failed with"
    "out of memory. It works at the driver API, below every framework."
    "To move memory it needs NVIDIA's driver for CUDA 12.5 or newer. On a simulated"
    "GPU, `spillway demo` shows the whole thing.")
list(JOIN SPILLWAY_DESCRIPTION "\n" CPACK_PACKAGE_DESCRIPTION)

# dpkg-shlibdeps finds what the files need. The demo's libcuda.so.1 and libcudart.so.13 are found in the package.
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR}/sim)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION TRUE)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libcuda1, python3")

# rpm finds what the files need, too. The simulated libcuda.so.1 must be nobody else's: it is neither provided nor required.
# Nobody links with the library; who has no pkg-config does without its file.
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_RELEASE 1)
set(CPACK_RPM_PACKAGE_LICENSE Apache-2.0)
set(CPACK_RPM_PACKAGE_DESCRIPTION ${CPACK_PACKAGE_DESCRIPTION})
set(CPACK_RPM_PACKAGE_RELOCATABLE OFF)
set(CPACK_RPM_SPEC_MORE_DEFINE "%define __provides_exclude_from ^.*/spillway/demo/.*$
%define _build_id_links none
%define __provides_exclude ^libspillway.*$
%define __requires_exclude ^lib(cuda|cudart)[.]so.*$|^/usr/bin/pkg-config$")
# Folders of others.
foreach(folder bash-completion bash-completion/completions fish fish/vendor_completions.d zsh zsh/site-functions man
               man/man1 man/man5 man/man7 doc)
  list(APPEND CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION /usr/share/${folder})
endforeach()
list(APPEND CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION /usr/${CMAKE_INSTALL_LIBDIR}/pkgconfig)
include(CPack)

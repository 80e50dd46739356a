/*
 * birth_lines.h: at which line of the program each tensor is born (call_site_of_tensor), within a share of the time.
 *
 * A training step makes the same tensors in the same order as the one before, and PyTorch's allocator gives them the
 * same addresses. So a birth is recognized by its range and by those of the two births before it on its thread, and
 * has the line that was found when this was seen for the first time. Now and then it is looked again. In the first
 * steps addresses are not settled, and where lengths vary they never are: a birth that is not recognized has the line
 * of the latest one that was named with the same eight sizes, its own and those before it, until there is time to
 * look.
 *
 * Naming may take 1/125 of the time, and 20 ms that were saved, of the CPU, whatever the program does; births that
 * are recognized cost no time of it. Half of what may be saved is kept for tensors of which nothing is known and that
 * are not small: hardly anything of small ones moves. A birth that is neither recognized nor named has no line.
 *
 * Measured with the births of nine steps of a GPT (16 layers, H200, 1,430 births a step of 70 ms; of their bytes 0.2
 * % are of tensors below 4 MiB), where a place in the program is the sizes of six births before and six behind: of
 * all bytes 99.9 % have the right place by range and two births, 95 % by eight sizes, 59 % by range alone. With 15 us
 * a naming all bytes have a place from the first step on, 92 % of them the right one in the third step and 97 % in
 * the tenth; without sizes 9 % had one in the fourth. Of what is alive 99 % lies in units whose latest birth is its
 * own.
 *
 * A thread of PyTorch's autograd is at no line: there the line counts for which it runs, if that is known
 * (node_lines_name()).
 *
 * Measured (naming_bench.py, x86-64, in a virtual machine): 7 ns a birth that is recognized, 50 to 130 one that is
 * not, without its naming (call_site.h).
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

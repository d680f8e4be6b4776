/* Symbols that Debian 12's archives want and glibc 2.35 (the oldest that the product runs on) lacks. The linker takes these
 * definitions first (-u in bazel/flags.bzl), so that no symbol version newer than 2.35 is needed.
 * arc4random: wanted by libstdc++.a (std::random_device), in glibc since 2.36. Any thread. */
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

/* glibc 2.36 declares it in stdlib.h; older ones do not. */
uint32_t arc4random(void);

uint32_t arc4random(void)
{
	uint32_t value;

	if (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value)
		abort(); /* four bytes cannot be cut short, and the kernel has had the call since 3.17 */
	return value;
}

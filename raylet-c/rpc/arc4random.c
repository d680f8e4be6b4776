/* arc4random and arc4random_buf by getrandom(2).
 *
 * The archives under gRPC (c-ares) were built against glibc 2.36, which has them; the oldest supported system has 2.35. A
 * definition in the program is taken instead of the library's, so that the program needs no symbol newer than 2.35.
 * Failure aborts, as glibc's own does: there is no way to report it. Any thread. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

uint32_t arc4random(void);
void arc4random_buf(void *p, size_t n);

void arc4random_buf(void *p, size_t n)
{
	uint8_t *at = p;
	while (n) {
		ssize_t got = getrandom(at, n, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			abort();
		at += got;
		n -= (size_t)got;
	}
}

uint32_t arc4random(void)
{
	uint32_t v;
	arc4random_buf(&v, sizeof(v));
	return v;
}

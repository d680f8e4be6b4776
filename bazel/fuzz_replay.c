/* main() for a fuzz target without libFuzzer: runs it on each file named on the command line and on no bytes at all, so that
 * the seed corpus is a unit test of every build, the sanitizers' included. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	uint8_t *bytes = NULL;
	size_t n = 0, got;
	uint8_t piece[4096];

	if (f == NULL) {
		perror(path);
		return -1;
	}
	while ((got = fread(piece, 1, sizeof piece, f)) > 0) {
		uint8_t *more = realloc(bytes, n + got);

		if (more == NULL)
			abort();
		bytes = more;
		memcpy(bytes + n, piece, got);
		n += got;
	}
	fclose(f);
	LLVMFuzzerTestOneInput(bytes, n); /* exactly n bytes on the heap: a read past them is seen */
	free(bytes);
	return 0;
}

int main(int argc, char **argv)
{
	uint8_t *nothing = calloc(1, 1);
	int failed = 0;

	LLVMFuzzerTestOneInput(nothing, 0);
	free(nothing);
	for (int i = 1; i < argc; i++)
		if (run_file(argv[i]) != 0)
			failed = 1;
	printf("%s 1 - runs on %d seeds and on nothing\n1..1\n", failed ? "not ok" : "ok", argc - 1);
	return failed;
}

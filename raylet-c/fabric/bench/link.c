/* One side of a link, for scripts that put the two sides into namespaces (bench/fabric_link.py, tests/fabric_link.py).
 *
 *   link grant PROVIDER IP BYTES            grants memory with a known pattern; prints one line (address and key in hex), then
 *                                           waits for the end of stdin
 *   link read PROVIDER IP BYTES LINE TIMES  reads all of it TIMES times and compares; one line each: seconds, processor seconds
 *                                           of this process; or "error TEXT", after which the next try waits 0.2 s
 *
 * build: gcc -O2 -I. raylet-c/fabric/bench/link.c build/librc_fabric.a build/librc_base.a -l:libuv_a.a -ldl -lpthread */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "raylet-c/base/log.h"
#include "raylet-c/fabric/fabric.h"

enum { CHUNK = 5 << 20, AT_ONCE = 4, STALL_MS = 3000, REST_MS = 500, RETRY_MS = 200 };

static rc_loop *loop;
static rc_fabric *fabric;
static const char *provider, *ip;
static uint8_t *memory;
static uint64_t size;
static bool reader;

typedef struct told {
	uint8_t address[RC_FABRIC_ADDRESS];
	uint64_t n;
	rc_remote remote;
} told;

static told peer;
static uint64_t next_byte;
static int under_way, times;
static rc_error failed;
static double began, began_cpu;

static uint64_t word_of(uint64_t i)
{
	return i * 0x9e3779b97f4a7c15ull ^ i >> 7;
}

static double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool choose(rc_fabric_offer *ret)
{
	rc_fabric_offer all[RC_FABRIC_MAX_OFFERS];
	size_t n = rc_fabric_usable(fabric, all);

	if (n)
		*ret = all[0];
	return n > 0;
}

static void on_granted(void *arg, const rc_error *error, rc_view address, const rc_remote *remote)
{
	told t = { .n = address.n };

	(void)arg;
	if (error) {
		printf("error %s\n", error->text);
		exit(1);
	}
	memcpy(t.address, address.p, address.n);
	t.remote = *remote;
	for (size_t i = 0; i < sizeof t; i++)
		printf("%02x", ((const uint8_t *)&t)[i]);
	printf("\n");
	fflush(stdout);
}

static void begin_round(void *arg);

static void end_round(void)
{
	uint64_t wrong = 0;

	if (failed.code) {
		printf("error %s\n", failed.text);
		fflush(stdout);
		rc_loop_after(loop, RETRY_MS, begin_round, NULL);
		return;
	}
	printf("%.4f %.4f", seconds(CLOCK_MONOTONIC) - began, seconds(CLOCK_PROCESS_CPUTIME_ID) - began_cpu);
	for (uint64_t i = 0; i < size / 8; i++)
		wrong += ((uint64_t *)(void *)memory)[i] != word_of(i);
	printf(wrong ? " WRONG\n" : "\n");
	fflush(stdout);
	if (wrong)
		exit(1);
	if (--times == 0) {
		rc_loop_stop(loop);
		return;
	}
	begin_round(NULL);
}

static void on_read(void *arg, const rc_error *e);

static void more(void)
{
	rc_fabric_offer o;

	while (!failed.code && under_way < AT_ONCE && next_byte < size) {
		uint64_t n = size - next_byte < CHUNK ? size - next_byte : CHUNK;

		if (!choose(&o)) {
			rc_fail(&failed, RC_E_UNAVAILABLE, "the provider rests");
			break;
		}
		under_way++;
		rc_fabric_read(fabric, &o, rc_view_of(peer.address, peer.n), memory + next_byte, n, &peer.remote, next_byte, on_read, NULL);
		next_byte += n;
	}
	if (under_way == 0)
		end_round();
}

static void on_read(void *arg, const rc_error *e)
{
	(void)arg;
	under_way--;
	if (e && !failed.code)
		failed = *e;
	more();
}

static void begin_round(void *arg)
{
	(void)arg;
	failed = (rc_error){ 0 };
	next_byte = 0;
	memset(memory, 0, size);
	began = seconds(CLOCK_MONOTONIC);
	began_cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
	more();
}

static void on_ready(void *arg)
{
	rc_fabric_offer o;

	(void)arg;
	if (!choose(&o)) {
		printf("error provider %s is not here\n", provider);
		exit(1);
	}
	if (reader)
		begin_round(NULL);
	else
		rc_fabric_grant(fabric, &o, memory, size, on_granted, NULL);
}

static void on_stdin(void *arg, int events)
{
	char byte;

	(void)arg;
	(void)events;
	if (fread(&byte, 1, 1, stdin) == 0)
		rc_loop_stop(loop);
}

int main(int argc, char **argv)
{
	if (argc < 5 || (reader = strcmp(argv[1], "read") == 0, reader && argc < 7)) {
		fprintf(stderr, "see the head of link.c\n");
		return 2;
	}
	provider = argv[2];
	ip = argv[3];
	size = strtoull(argv[4], NULL, 10);
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	rc_log_level(RC_ERROR);
	loop = rc_loop_create();
	if (reader) {
		for (size_t i = 0; i < sizeof peer && argv[5][2 * i] && argv[5][2 * i + 1]; i++) {
			char two[3] = { argv[5][2 * i], argv[5][2 * i + 1], 0 };

			((uint8_t *)&peer)[i] = (uint8_t)strtoul(two, NULL, 16);
		}
		times = atoi(argv[6]);
	} else {
		for (uint64_t i = 0; i < size / 8; i++)
			((uint64_t *)(void *)memory)[i] = word_of(i);
		rc_watch_start(loop, 0, RC_READABLE, on_stdin, NULL);
	}
	fabric = rc_fabric_create(&(rc_fabric_options){
	        .loop = loop, .providers = provider, .ip = ip, .stall_ms = STALL_MS, .rest_ms = REST_MS, .ready = on_ready });
	rc_fabric_start(fabric);
	rc_loop_run(loop);
	rc_fabric_destroy(fabric);
	rc_loop_destroy(loop);
	return 0;
}

/* A mock of NVIDIA's management library for tests: see README.md. */
#ifndef MOCK_H
#define MOCK_H

#define NVML_NO_UNVERSIONED_FUNC_DEFS /* our functions have the names of the symbols */
#include "nvml.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "boards.h"

enum { MAX_GPUS = 16, MAX_GIS = 16, MAX_CIS = 8, MAX_PROCS = 128, MAX_LINES = 256, MAX_EVENTS = 64 };
enum { NONE = 0xFFFFFFFF }; /* NVML's id of "no instance" */

/* What the hardware keeps, in a file that all clients map. A change is one store: whoever dies leaves it whole. */
struct ci {
	unsigned used, profile, start; /* profile: compute slices */
};
struct gi {
	unsigned used, profile, start; /* profile: index in the board's table */
	struct ci ci[MAX_CIS];
};
struct gpu {
	unsigned mig, pending, compute, persistence;
	struct gi gi[MAX_GIS];
};
struct event {
	uint64_t seq, type, data;
	unsigned gpu, gi, ci;
};
struct line { /* how often a line of the control files was used */
	uint64_t hash;
	unsigned used, seen;
};
struct state {
	uint64_t magic, seq;
	struct gpu gpu[MAX_GPUS];
	struct event event[MAX_EVENTS]; /* event[seq % MAX_EVENTS] is the newest */
	struct line line[MAX_LINES];
};

struct proc {
	unsigned pid, gpu, gi, ci, mib, sm;
};

/* What the control files say now. */
struct settings {
	unsigned gpus;
	const struct board *board[MAX_GPUS];
	char driver[32], seed[64];
	int cuda, root, immediate, scan;
	struct fault {
		enum { FAIL = 1, HANG, ABORT } kind;
		char call[96];
		double arg;
		unsigned times, gpu; /* times: 0 is for ever; gpu: NONE is any */
		struct line *line;
	} fault[MAX_LINES];
	unsigned faults;
	struct proc proc[MAX_PROCS];
	unsigned procs;
	struct {
		unsigned lost, recovery, celsius, remapped[4];
		unsigned long long corrected, uncorrected, clocks;
	} gpu[MAX_GPUS];
};

extern struct state *state;
extern struct settings settings;

/* A handle is an address in a table without contents, so it says which GPU and which instances it names. */
struct place {
	unsigned gpu, gi, ci;
};
struct nvmlDevice_st *handle_of(struct place p);
int place_of(const void *handle, struct place *p); /* 0: not a handle of ours */

/* enter takes the lock, reads the control files and lets their faults happen. Whoever got NVML_SUCCESS holds the lock. */
nvmlReturn_t enter(const char *call, const void *handle, struct place *p);
void leave(int *held);
void unlock(void);
int relock(void); /* takes the lock and reads the control files, without faults; 0: the library was shut down */

#define CALL0()                                              \
	__attribute__((cleanup(leave))) int held = 1;        \
	nvmlReturn_t refused = enter(__func__, NULL, NULL);  \
	if (refused != NVML_SUCCESS) return refused

/* CALL begins a function with a handle: at is what it names. */
#define CALL(h) CALL_AS(__func__, h)
#define CALL_AS(name, h)                                              \
	__attribute__((cleanup(leave))) int held = 1;        \
	struct place at;                                     \
	nvmlReturn_t refused = enter(name, (h).handle, &at); \
	if (refused != NVML_SUCCESS) return refused;         \
	struct gpu *gpu = &state->gpu[at.gpu];               \
	const struct board *board = settings.board[at.gpu];  \
	(void)gpu, (void)board

#define WANT(cond)                                           \
	do {                                                 \
		if (!(cond)) return NVML_ERROR_INVALID_ARGUMENT; \
	} while (0)

/* With the lock held. */
nvmlReturn_t create_gi(unsigned gpu, unsigned profile, unsigned start, unsigned *id);
nvmlReturn_t create_ci(struct gi *gi, unsigned profile, unsigned start, unsigned *id);
int has_instances(const struct gpu *g);
int exists(struct place p); /* whether the instances that it names stand */
const struct profile *profile_of(struct place p);
void uuid_of(struct place p, char out[64]);
unsigned procs_on(struct place p, struct proc out[MAX_PROCS]);
void sum_procs(struct place p, unsigned *mib, unsigned *sm);
uint64_t hash(uint64_t h, const char *s, size_t n);
nvmlReturn_t put(char *to, unsigned length, const char *text);
int by_name(const char *name); /* nvmlReturn_t of "IN_USE"; -1: none */

#endif

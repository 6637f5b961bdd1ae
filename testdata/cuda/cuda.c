// A libcuda.so.1 that keeps the rules of the driver's checkpoint calls and has no GPU. What it knows is in the folder
// that FAKE_CUDA names:
//
//	gpus       a line "UUID MIB" for each GPU
//	version    what cuDriverGetVersion says; without the file 13000
//	fail       lines "STEP CODE [HOW]": STEP (init, state, lock, checkpoint, restore, unlock) returns CODE. HOW is
//	           "failed": the process is then in the state failed; "crash": the caller dies after the step was done.
//	           "STEP:2" is the second call of the step
//	state-PID  where a process stands; without the file running
//	calls      is appended to: a line for each step that changes something
//
// A process uses CUDA when its program is named sleep. With -DOLD the checkpoint calls are missing, as in driver 550.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef struct { unsigned char bytes[16]; } CUuuid;
typedef struct { unsigned timeoutMs, reserved0; uint64_t reserved1[7]; } LockArgs;
typedef struct { uint64_t reserved[8]; } NoArgs;
typedef struct { CUuuid old, new; } Pair;
typedef struct { Pair *pairs; unsigned count; char reserved[52]; } RestoreArgs;

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, NO_DEVICE = 100, ILLEGAL_STATE = 401 };
enum { RUNNING, LOCKED, CHECKPOINTED, FAILED };

static int initialised;

static FILE *file(const char *name, const char *mode)
{
	char path[4096];
	const char *dir = getenv("FAKE_CUDA");
	snprintf(path, sizeof path, "%s/%s", dir ? dir : ".", name);
	return fopen(path, mode);
}

static void say(const char *line)
{
	FILE *f = file("calls", "a");
	if (f) {
		fprintf(f, "%s\n", line);
		fclose(f);
	}
}

static int stands(int pid)
{
	char name[32];
	int s = RUNNING;
	snprintf(name, sizeof name, "state-%d", pid);
	FILE *f = file(name, "r");
	if (f) {
		if (fscanf(f, "%d", &s) != 1)
			s = FAILED;
		fclose(f);
	}
	return s;
}

static void stand(int pid, int s)
{
	char name[32];
	snprintf(name, sizeof name, "state-%d", pid);
	FILE *f = file(name, "w");
	if (f) {
		fprintf(f, "%d\n", s);
		fclose(f);
	}
}

// told looks a step up in the file of failures. count counts the calls of one step over all callers.
static int told(const char *step, int *how)
{
	char nth[64], name[64], line[256], word[64], with[64];
	int code, n = 0;
	*how = 0;
	snprintf(name, sizeof name, "count-%s", step);
	FILE *f = file(name, "r");
	if (f) {
		if (fscanf(f, "%d", &n) != 1)
			n = 0;
		fclose(f);
	}
	if ((f = file(name, "w"))) {
		fprintf(f, "%d\n", ++n);
		fclose(f);
	}
	snprintf(nth, sizeof nth, "%s:%d", step, n);
	if (!(f = file("fail", "r")))
		return SUCCESS;
	while (fgets(line, sizeof line, f)) {
		with[0] = 0;
		if (sscanf(line, "%63s %d %63s", word, &code, with) >= 2 && (!strcmp(word, step) || !strcmp(word, nth))) {
			*how = with[0];
			fclose(f);
			return code;
		}
	}
	fclose(f);
	return SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
	*version = 13000;
	FILE *f = file("version", "r");
	if (f) {
		if (fscanf(f, "%d", version) != 1)
			*version = 0;
		fclose(f);
	}
	return SUCCESS;
}

static int gpu(int at, CUuuid *u, uint64_t *bytes)
{
	char line[256], text[64];
	unsigned long long mib;
	int n = 0;
	FILE *f = file("gpus", "r");
	while (f && fgets(line, sizeof line, f)) {
		if (sscanf(line, "GPU-%63s %llu", text, &mib) != 2 || n++ != at)
			continue;
		int i = 0;
		for (char *p = text; *p && i < 16; p += 2) {
			if (*p == '-')
				p++;
			unsigned b;
			sscanf(p, "%2x", &b);
			if (u)
				u->bytes[i] = b;
			i++;
		}
		if (bytes)
			*bytes = mib << 20;
	}
	if (f)
		fclose(f);
	return n;
}

CUresult cuInit(unsigned flags)
{
	int how, code = told("init", &how);
	if (flags)
		return INVALID_VALUE;
	if (getenv("CUDA_VISIBLE_DEVICES"))
		return INVALID_VALUE; // the caller shall see every GPU
	say("init");
	if (code)
		return code;
	if (!gpu(-1, NULL, NULL))
		return NO_DEVICE;
	initialised = 1;
	return SUCCESS;
}

CUresult cuDeviceGetCount(int *n)
{
	if (!initialised)
		return NOT_INITIALIZED;
	*n = gpu(-1, NULL, NULL);
	return SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *u, int device)
{
	if (!initialised)
		return NOT_INITIALIZED;
	return device < gpu(device, u, NULL) ? SUCCESS : INVALID_DEVICE;
}

CUresult cuDeviceTotalMem_v2(uint64_t *bytes, int device)
{
	if (!initialised)
		return NOT_INITIALIZED;
	return device < gpu(device, NULL, bytes) ? SUCCESS : INVALID_DEVICE;
}

#ifndef OLD
static int uses(int pid)
{
	char path[64], comm[64] = "";
	snprintf(path, sizeof path, "/proc/%d/comm", pid);
	FILE *f = fopen(path, "r");
	if (!f)
		return 0;
	if (!fgets(comm, sizeof comm, f))
		comm[0] = 0;
	fclose(f);
	return !strcmp(comm, "sleep\n");
}

static int zero(const void *at, size_t n)
{
	for (const char *p = at; n--; p++)
		if (*p)
			return 0;
	return 1;
}

// step is one that takes a process from a state to another.
static CUresult step(const char *name, int pid, int from, int to)
{
	if (!uses(pid))
		return INVALID_VALUE;
	int how, code = told(name, &how);
	if (code || how) {
		if (how == 'f')
			stand(pid, FAILED);
		if (how == 'c') {
			stand(pid, to);
			abort();
		}
		return code;
	}
	if (stands(pid) != from)
		return ILLEGAL_STATE;
	stand(pid, to);
	return SUCCESS;
}

CUresult cuCheckpointProcessGetState(int pid, unsigned *s)
{
	int how, code = told("state", &how);
	if (how == 'c')
		abort();
	if (code)
		return code;
	if (!s || !uses(pid))
		return INVALID_VALUE;
	*s = stands(pid);
	return SUCCESS;
}

CUresult cuCheckpointProcessLock(int pid, LockArgs *a)
{
	char line[64];
	snprintf(line, sizeof line, "lock %d %u", pid, a ? a->timeoutMs : 0);
	say(line);
	if (a && (a->reserved0 || !zero(a->reserved1, sizeof a->reserved1)))
		return INVALID_VALUE;
	return step("lock", pid, RUNNING, LOCKED);
}

CUresult cuCheckpointProcessCheckpoint(int pid, NoArgs *a)
{
	char line[64];
	snprintf(line, sizeof line, "checkpoint %d", pid);
	say(line);
	if (a && !zero(a, sizeof *a))
		return INVALID_VALUE;
	return step("checkpoint", pid, LOCKED, CHECKPOINTED);
}

static void text(char *to, const CUuuid *u)
{
	to += sprintf(to, "GPU-");
	for (int i = 0; i < 16; i++)
		to += sprintf(to, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u->bytes[i]);
}

CUresult cuCheckpointProcessRestore(int pid, RestoreArgs *a)
{
	char line[4096];
	int n = snprintf(line, sizeof line, "restore %d", pid);
	for (unsigned i = 0; a && i < a->count && i < 16; i++) {
		char was[64], is[64];
		text(was, &a->pairs[i].old);
		text(is, &a->pairs[i].new);
		n += snprintf(line + n, sizeof line - n, " %s=%s", was, is);
	}
	say(line);
	if (!initialised)
		return NOT_INITIALIZED;
	if (a && !zero(a->reserved, sizeof a->reserved))
		return INVALID_VALUE;
	return step("restore", pid, CHECKPOINTED, LOCKED);
}

CUresult cuCheckpointProcessUnlock(int pid, NoArgs *a)
{
	char line[64];
	snprintf(line, sizeof line, "unlock %d", pid);
	say(line);
	if (a && !zero(a, sizeof *a))
		return INVALID_VALUE;
	return step("unlock", pid, LOCKED, RUNNING);
}
#endif

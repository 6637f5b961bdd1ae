/* The state that all clients share, the control files, faults, and what processes are where. */
#include "mock.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct state *state;
struct settings settings;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* flock knows processes, this threads */
static int fd = -1;
static unsigned inits;
static const uint64_t MAGIC = 0x6d6f636b6e766d31; /* of this layout */

uint64_t hash(uint64_t h, const char *s, size_t n) {
	for (h = h ? h : 0xcbf29ce484222325; n > 0; n--) h = (h ^ (unsigned char)*s++) * 0x100000001b3;
	return h;
}

/* --- files --- */

static void path_of(const char *variable, const char *name, char out[4096]) {
	const char *own = getenv(variable), *file = getenv("MOCK_NVML_STATE");
	if (own && *own) {
		snprintf(out, 4096, "%s", own);
		return;
	}
	if (file && *file) {
		const char *slash = strrchr(file, '/');
		snprintf(out, 4096, "%.*s%s", slash ? (int)(slash - file + 1) : 0, file, name);
		return;
	}
	snprintf(out, 4096, "/tmp/mock-nvml-%u", geteuid());
	mkdir(out, 0700);
	snprintf(out, 4096, "/tmp/mock-nvml-%u/%s", geteuid(), name);
}

static int open_state(void) {
	char path[4096];
	path_of("MOCK_NVML_STATE", "state", path);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0) {
		fprintf(stderr, "mock nvml: state file %s: %s\n", path, strerror(errno));
		return 0;
	}
	flock(fd, LOCK_EX);
	if (ftruncate(fd, sizeof *state) == 0) state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (!state || state == MAP_FAILED) {
		fprintf(stderr, "mock nvml: state file %s: %s\n", path, strerror(errno));
		close(fd);
		fd = -1;
		state = NULL;
		return 0;
	}
	if (state->magic != MAGIC) { /* new, or of another layout: as after a reboot */
		memset(state, 0, sizeof *state);
		state->magic = MAGIC;
	}
	flock(fd, LOCK_UN);
	return 1;
}

static void lock(void) {
	pthread_mutex_lock(&mutex);
	if (fd >= 0)
		while (flock(fd, LOCK_EX) < 0 && errno == EINTR) {}
}

void unlock(void) {
	if (fd >= 0) flock(fd, LOCK_UN);
	pthread_mutex_unlock(&mutex);
}

void leave(int *held) {
	if (*held) unlock();
}

/* --- the control files --- */

/* first tells whether a line that acts once has not acted yet. */
static int first(struct line *l) { return l->used++ == 0; }

static unsigned number(const char *word) {
	if (!word || !strcmp(word, "-")) return NONE;
	return (unsigned)strtoul(word, NULL, 0);
}

static void happen(unsigned gpu, uint64_t type, uint64_t data, unsigned gi, unsigned ci) {
	uint64_t seq = state->seq + 1;
	state->event[seq % MAX_EVENTS] = (struct event){seq, type, data, gpu, gi, ci};
	state->seq = seq;
}

/* reset takes every instance; an Ampere gets the mode that waited for it, and a Hopper loses it where the whole machine
 * went down. */
static void reset(unsigned i, int reboot) {
	struct gpu *g = &state->gpu[i];
	memset(g->gi, 0, sizeof g->gi);
	if (reboot && settings.board[i]->arch >= NVML_DEVICE_ARCH_HOPPER) g->pending = 0;
	if (reboot) g->compute = 0, g->persistence = 0;
	g->mig = g->pending;
}

static int is(const char *word, const char *what) { return !strcmp(word, what); }

/* obey carries out one line, cut into n words. */
static int obey(char **w, unsigned n, struct line *line) {
	unsigned gpu = n > 1 ? number(w[1]) : NONE;
	if (is(w[0], "gpu") && n == 3) {
		for (unsigned b = 0; b < sizeof boards / sizeof *boards; b++)
			if (is(w[2], boards[b].key)) {
				for (unsigned k = gpu; k > 0 && settings.gpus < MAX_GPUS; k--) settings.board[settings.gpus++] = &boards[b];
				return 1;
			}
		return 0;
	}
	if (is(w[0], "driver") && n == 2) return snprintf(settings.driver, sizeof settings.driver, "%s", w[1]) > 0;
	if (is(w[0], "seed") && n == 2) return snprintf(settings.seed, sizeof settings.seed, "%s", w[1]) > 0;
	if (is(w[0], "cuda") && n == 2) return settings.cuda = atoi(w[1]), 1;
	if (is(w[0], "root") && n == 2) return settings.root = is(w[1], "yes"), 1;
	if (is(w[0], "scan-proc") && n == 2) return settings.scan = is(w[1], "yes"), 1;
	if (is(w[0], "mode-change") && n == 2) return settings.immediate = is(w[1], "immediate"), 1;
	if (is(w[0], "fail") || is(w[0], "hang") || is(w[0], "abort")) {
		if (n < 3) return 0;
		struct fault *f = &settings.fault[settings.faults];
		*f = (struct fault){.kind = is(w[0], "fail") ? FAIL : is(w[0], "hang") ? HANG : ABORT, .gpu = n > 4 ? number(w[4]) : NONE};
		f->arg = f->kind == FAIL ? by_name(w[2]) : atof(w[2]);
		f->times = n > 3 ? number(w[3]) : 0;
		f->line = line;
		snprintf(f->call, sizeof f->call, "%s", w[1]);
		if (f->arg < 0) return 0;
		settings.faults++;
		return 1;
	}
	if (is(w[0], "process") && n == 7) {
		if (settings.procs < MAX_PROCS)
			settings.proc[settings.procs++] = (struct proc){number(w[1]), number(w[2]), number(w[3]), number(w[4]), number(w[5]), number(w[6])};
		return 1;
	}
	if (is(w[0], "reboot") && n == 1) {
		if (first(line))
			for (unsigned i = 0; i < settings.gpus; i++) reset(i, 1);
		return 1;
	}
	if (is(w[0], "mig") && n == 3) {
		if (first(line))
			for (unsigned i = 0; i < settings.gpus; i++)
				if (is(w[1], "all") || i == gpu) state->gpu[i].mig = state->gpu[i].pending = is(w[2], "on");
		return 1;
	}
	if (is(w[0], "event") && n == 6) {
		gpu = number(w[3]);
		if (gpu < settings.gpus && first(line)) happen(gpu, strtoull(w[1], NULL, 0), strtoull(w[2], NULL, 0), number(w[4]), number(w[5]));
		return gpu < settings.gpus;
	}
	if (is(w[0], "xid") && (n == 3 || n == 5)) {
		gpu = number(w[2]);
		if (gpu < settings.gpus && first(line))
			happen(gpu, nvmlEventTypeXidCriticalError, number(w[1]), n > 3 ? number(w[3]) : NONE, n > 4 ? number(w[4]) : NONE);
		return gpu < settings.gpus;
	}
	if (gpu >= settings.gpus) return 0;
	if (is(w[0], "lost") && n == 2) return settings.gpu[gpu].lost = 1;
	if (is(w[0], "recovery") && n == 3) return settings.gpu[gpu].recovery = number(w[2]), 1;
	if (is(w[0], "temperature") && n == 3) return settings.gpu[gpu].celsius = number(w[2]), 1;
	if (is(w[0], "clocks") && n == 3) return settings.gpu[gpu].clocks = strtoull(w[2], NULL, 0), 1;
	if (is(w[0], "ecc") && n == 4)
		return settings.gpu[gpu].corrected = strtoull(w[2], NULL, 0), settings.gpu[gpu].uncorrected = strtoull(w[3], NULL, 0), 1;
	if (is(w[0], "remapped") && n == 6) {
		for (unsigned i = 0; i < 4; i++) settings.gpu[gpu].remapped[i] = number(w[2 + i]);
		return 1;
	}
	if (is(w[0], "reset") && n == 2) {
		if (first(line)) reset(gpu, 0);
		return 1;
	}
	if (is(w[0], "instance") && n == 4) {
		unsigned gi, ci;
		if (!first(line)) return 1;
		if (create_gi(gpu, number(w[2]), number(w[3]), &gi) != NVML_SUCCESS) return 0;
		struct gi *made = &state->gpu[gpu].gi[gi];
		return create_ci(made, settings.board[gpu]->profile[made->profile].slices, 0, &ci) == NVML_SUCCESS;
	}
	if (is(w[0], "destroy") && n == 3) {
		if (first(line) && number(w[2]) < MAX_GIS) memset(&state->gpu[gpu].gi[number(w[2])], 0, sizeof(struct gi));
		return 1;
	}
	return 0;
}

/* slot finds the count of a line by its hash. */
static struct line *slot(uint64_t h) {
	struct line *empty = NULL;
	for (unsigned i = 0; i < MAX_LINES; i++) {
		if (state->line[i].hash == h) return &state->line[i];
		if (!empty && !state->line[i].hash) empty = &state->line[i];
	}
	if (!empty) {
		fprintf(stderr, "mock nvml: more than %d lines in the control files\n", MAX_LINES);
		abort();
	}
	*empty = (struct line){.hash = h};
	return empty;
}

static void read_control(const char *variable, const char *name) {
	char path[4096], text[1024];
	path_of(variable, name, path);
	FILE *f = fopen(path, "re");
	if (!f) return;
	for (unsigned row = 1; fgets(text, sizeof text, f); row++) {
		size_t n = strlen(text);
		if (n == 0 || text[n - 1] != '\n') break; /* being written */
		char *words[8], *save = NULL, *hashmark = strchr(text, '#');
		unsigned count = 0;
		if (hashmark) *hashmark = 0;
		uint64_t h = 0;
		for (char *word = strtok_r(text, " \t\r\n", &save); word && count < 8; word = strtok_r(NULL, " \t\r\n", &save)) {
			words[count++] = word;
			h = hash(h, word, strlen(word) + 1);
		}
		if (count == 0) continue;
		struct line *l = slot(h);
		while (l->seen) l = slot(h = hash(h, "again", 5)); /* the same line a second time */
		l->seen = 1;
		unsigned was = l->used;
		if (!obey(words, count, l)) {
			if (was == 0) fprintf(stderr, "mock nvml: %s line %u: no such thing, or it could not be done\n", path, row);
			l->used += l->used == 0;
		}
	}
	fclose(f);
}

/* control reads the control files and forgets the counts of lines that stand there no more. */
static void control(void) {
	memset(&settings, 0, sizeof settings);
	strcpy(settings.driver, "580.105.08");
	settings.cuda = 13000;
	settings.root = 1;
	for (unsigned i = 0; i < MAX_LINES; i++) state->line[i].seen = 0;
	read_control("MOCK_NVML_CONFIG", "config");
	if (settings.gpus == 0)
		for (unsigned b = 0; b < sizeof boards / sizeof *boards; b++)
			if (is(boards[b].key, "H100-80GB"))
				while (settings.gpus < 8) settings.board[settings.gpus++] = &boards[b];
	read_control("MOCK_NVML_FAULTS", "faults");
	for (unsigned i = 0; i < MAX_LINES; i++)
		if (!state->line[i].seen) state->line[i].hash = 0;
}

/* --- handles --- */

static char handles[MAX_GPUS][MAX_GIS + 1][MAX_CIS + 1];

struct nvmlDevice_st *handle_of(struct place p) {
	return (struct nvmlDevice_st *)&handles[p.gpu][p.gi == NONE ? 0 : p.gi + 1][p.ci == NONE ? 0 : p.ci + 1];
}

int place_of(const void *handle, struct place *p) {
	const char *h = handle, *base = &handles[0][0][0];
	if (h < base || h >= base + sizeof handles) return 0;
	size_t n = (size_t)(h - base), ci = n % (MAX_CIS + 1), gi = n / (MAX_CIS + 1) % (MAX_GIS + 1);
	*p = (struct place){n / (MAX_CIS + 1) / (MAX_GIS + 1), gi ? gi - 1 : NONE, ci ? ci - 1 : NONE};
	return p->gpu < settings.gpus;
}

/* --- calls --- */

/* same compares the name in a fault with a function's; a version (_v2) does not count. */
static int same(const char *fault, const char *call) {
	if (is(fault, "*")) return 1;
	size_t a = strlen(fault), b = strlen(call);
	if (a > 3 && fault[a - 3] == '_' && fault[a - 2] == 'v') a -= 3;
	if (b > 3 && call[b - 3] == '_' && call[b - 2] == 'v') b -= 3;
	return a == b && !strncmp(fault, call, a);
}

int relock(void) {
	lock();
	if (inits > 0) control();
	return inits > 0;
}

/* faults lets what the control files say happen to a call. It may give the lock away for a while. */
static nvmlReturn_t faults(const char *call, unsigned gpu) {
	for (unsigned i = 0; i < settings.faults; i++) {
		struct fault *f = &settings.fault[i];
		if (!same(f->call, call) || (f->gpu != NONE && f->gpu != gpu)) continue;
		unsigned used = ++f->line->used;
		switch (f->kind) {
		case ABORT:
			if (used != (unsigned)f->arg) continue;
			unlock();
			abort();
		case HANG:
			if (f->times && used > f->times) continue;
			double seconds = f->arg;
			unlock();
			usleep((useconds_t)(seconds * 1e6));
			return relock() ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
		case FAIL:
			if (f->times && used > f->times) continue;
			return (nvmlReturn_t)f->arg;
		}
	}
	return NVML_SUCCESS;
}

nvmlReturn_t enter(const char *call, const void *handle, struct place *p) {
	lock();
	nvmlReturn_t out = NVML_ERROR_UNINITIALIZED;
	if (inits > 0) {
		control();
		if (p && !place_of(handle, p))
			out = NVML_ERROR_INVALID_ARGUMENT;
		else if ((out = faults(call, p ? p->gpu : NONE)) == NVML_SUCCESS && p && settings.gpu[p->gpu].lost)
			out = NVML_ERROR_GPU_IS_LOST;
	}
	return out; /* the lock is let go when the caller's frame ends */
}

static nvmlReturn_t initialise(void) {
	pthread_mutex_lock(&mutex);
	if (fd < 0 && !open_state()) {
		pthread_mutex_unlock(&mutex);
		return NVML_ERROR_UNKNOWN;
	}
	inits++; /* a fault that takes its time needs the library */
	pthread_mutex_unlock(&mutex);
	relock();
	nvmlReturn_t out = faults("nvmlInit", NONE);
	if (out != NVML_SUCCESS) inits--;
	unlock();
	return out;
}

nvmlReturn_t nvmlInit(void) { return initialise(); }
nvmlReturn_t nvmlInit_v2(void) { return initialise(); }
nvmlReturn_t nvmlInitWithFlags(unsigned flags) { return (void)flags, initialise(); }

nvmlReturn_t nvmlShutdown(void) {
	CALL0();
	if (--inits > 0) return NVML_SUCCESS;
	munmap(state, sizeof *state); /* who comes back may have another file */
	close(fd);
	state = NULL;
	fd = -1;
	return NVML_SUCCESS;
}

/* --- processes --- */

/* visible tells whether an environment (words ended by 0) names a device. */
static int visible(const char *env, size_t n, const char *uuid) {
	for (size_t i = 0; i < n; i += strnlen(env + i, n - i) + 1) {
		const char *v = env + i;
		if (!strncmp(v, "CUDA_VISIBLE_DEVICES=", 21) || !strncmp(v, "NVIDIA_VISIBLE_DEVICES=", 23))
			if (strstr(v, uuid)) return 1;
	}
	return 0;
}

/* scan adds the real processes whose environment gives them a device of this GPU. */
static unsigned scan(unsigned gpu, struct proc out[], unsigned n) {
	static char env[1 << 17]; /* under the lock */
	struct dirent *e;
	DIR *d = opendir("/proc");
	if (!d) return n;
	while ((e = readdir(d)) && n < MAX_PROCS) {
		char path[64];
		if (!isdigit((unsigned char)*e->d_name)) continue;
		snprintf(path, sizeof path, "/proc/%.20s/environ", e->d_name);
		int file = open(path, O_RDONLY | O_CLOEXEC);
		if (file < 0) continue;
		size_t size = 0;
		for (ssize_t got; size < sizeof env - 1 && (got = read(file, env + size, sizeof env - 1 - size)) > 0;) size += (size_t)got;
		close(file);
		env[size] = 0;
		unsigned pid = (unsigned)atoi(e->d_name);
		char uuid[64];
		uuid_of((struct place){gpu, NONE, NONE}, uuid);
		if (!state->gpu[gpu].mig && visible(env, size, uuid)) out[n++] = (struct proc){pid, gpu, NONE, NONE, 512, 0};
		for (unsigned gi = 0; state->gpu[gpu].mig && gi < MAX_GIS; gi++)
			for (unsigned ci = 0; ci < MAX_CIS && n < MAX_PROCS; ci++) {
				struct place p = {gpu, gi, ci};
				if (!exists(p)) continue;
				uuid_of(p, uuid);
				if (visible(env, size, uuid)) out[n++] = (struct proc){pid, gpu, gi, ci, 512, 0};
			}
	}
	closedir(d);
	return n;
}

unsigned procs_on(struct place p, struct proc out[MAX_PROCS]) {
	struct proc all[MAX_PROCS];
	unsigned n = 0, count = settings.procs;
	memcpy(all, settings.proc, sizeof all);
	if (settings.scan) count = scan(p.gpu, all, count);
	for (unsigned i = 0; i < count; i++)
		if (all[i].gpu == p.gpu && (p.gi == NONE || all[i].gi == p.gi) && (p.ci == NONE || all[i].ci == p.ci)) out[n++] = all[i];
	return n;
}

void sum_procs(struct place p, unsigned *mib, unsigned *sm) {
	struct proc on[MAX_PROCS];
	*mib = *sm = 0;
	for (unsigned i = procs_on(p, on); i > 0; i--) *mib += on[i - 1].mib, *sm += on[i - 1].sm;
	if (*sm > 100) *sm = 100;
}

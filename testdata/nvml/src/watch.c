/* What GPUs do: processes, utilisation, GPM, events. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "mock.h"

static unsigned long long micros(void) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (unsigned long long)t.tv_sec * 1000000 + (unsigned long long)t.tv_nsec / 1000;
}

/* --- processes --- */

/* list answers the three calls that list processes; they differ in whether a row says the instances. */
static nvmlReturn_t list(const char *call, nvmlDevice_t device, unsigned *count, void *rows, int v1, int compute) {
	CALL_AS(call, device);
	WANT(count);
	if (!exists(at)) return NVML_ERROR_NOT_FOUND;
	struct proc on[MAX_PROCS];
	unsigned n = compute ? procs_on(at, on) : 0, room = rows ? *count : 0;
	*count = n;
	if (n > room) return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned i = 0; i < n; i++)
		if (v1)
			((nvmlProcessInfo_v1_t *)rows)[i] = (nvmlProcessInfo_v1_t){on[i].pid, (unsigned long long)on[i].mib << 20};
		else
			((nvmlProcessInfo_t *)rows)[i] = (nvmlProcessInfo_t){on[i].pid, (unsigned long long)on[i].mib << 20, on[i].gi, on[i].ci};
	return NVML_SUCCESS;
}

#define LISTS(name, compute)                                                                                                                                            \
	nvmlReturn_t name(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v1_t *rows) { return list(__func__, device, count, rows, 1, compute); }                 \
	nvmlReturn_t name##_v2(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v2_t *rows) { return list(__func__, device, count, rows, 0, compute); }            \
	nvmlReturn_t name##_v3(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *rows) { return list(__func__, device, count, rows, 0, compute); }
LISTS(nvmlDeviceGetComputeRunningProcesses, 1)
LISTS(nvmlDeviceGetGraphicsRunningProcesses, 0)
LISTS(nvmlDeviceGetMPSComputeRunningProcesses, 0)

/* --- utilisation: not of MIG --- */

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out) {
	CALL(device);
	WANT(out);
	if (gpu->mig || at.gi != NONE) return NVML_ERROR_NOT_SUPPORTED;
	unsigned mib, sm;
	sum_procs(at, &mib, &sm);
	*out = (nvmlUtilization_t){sm, sm / 2};
	return NVML_SUCCESS;
}

/* samples lists the processes that computed since last seen: a sample is as new as the call. */
static unsigned samples(struct place at, struct proc out[MAX_PROCS]) {
	struct proc on[MAX_PROCS];
	unsigned n = 0, count = procs_on(at, on);
	for (unsigned i = 0; i < count; i++)
		if (on[i].sm > 0) out[n++] = on[i];
	return n;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *out, unsigned *count, unsigned long long seen) {
	CALL(device);
	WANT(count);
	if (gpu->mig || at.gi != NONE) return NVML_ERROR_NOT_SUPPORTED;
	struct proc on[MAX_PROCS];
	unsigned long long now = micros();
	unsigned n = now > seen ? samples(at, on) : 0, room = out ? *count : 0;
	if (n == 0) return NVML_ERROR_NOT_FOUND;
	*count = n;
	if (n > room) return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned i = 0; i < n; i++) out[i] = (nvmlProcessUtilizationSample_t){on[i].pid, now, on[i].sm, on[i].sm / 2, 0, 0};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *info) {
	CALL(device);
	WANT(info);
	if (gpu->mig || at.gi != NONE) return NVML_ERROR_NOT_SUPPORTED;
	if (info->version != nvmlProcessesUtilizationInfo_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	struct proc on[MAX_PROCS];
	unsigned long long now = micros();
	unsigned n = now > info->lastSeenTimeStamp ? samples(at, on) : 0, room = info->procUtilArray ? info->processSamplesCount : 0;
	if (n == 0) return NVML_ERROR_NOT_FOUND;
	info->processSamplesCount = n;
	if (n > room) return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned i = 0; i < n; i++) info->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){now, on[i].pid, on[i].sm, on[i].sm / 2, 0, 0, 0, 0};
	return NVML_SUCCESS;
}

/* --- GPM: Hopper and later, MIG too --- */

struct nvmlGpmSample_st {
	struct place at;
	unsigned filled, sm;
};

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *out) {
	CALL(device);
	WANT(out);
	if (out->version != NVML_GPM_SUPPORT_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	out->isSupportedDevice = board->arch >= NVML_DEVICE_ARCH_HOPPER;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample) {
	CALL0();
	WANT(sample);
	sample->handle = calloc(1, sizeof *sample->handle);
	return sample->handle ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) {
	CALL0();
	WANT(sample.handle);
	free(sample.handle);
	return NVML_SUCCESS;
}

static nvmlReturn_t take(struct place at, nvmlGpmSample_t sample) {
	unsigned mib;
	if (settings.board[at.gpu]->arch < NVML_DEVICE_ARCH_HOPPER) return NVML_ERROR_NOT_SUPPORTED;
	if (!exists(at)) return NVML_ERROR_NOT_FOUND;
	sample.handle->at = at;
	sample.handle->filled = 1;
	sum_procs(at, &mib, &sample.handle->sm);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) {
	CALL(device);
	WANT(sample.handle);
	return take(at, sample);
}

nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned gi, nvmlGpmSample_t sample) {
	CALL(device);
	WANT(sample.handle && at.gi == NONE);
	if (!gpu->mig) return NVML_ERROR_NOT_SUPPORTED;
	if (gi >= MAX_GIS) return NVML_ERROR_NOT_FOUND;
	return take((struct place){at.gpu, gi, NONE}, sample);
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get) {
	CALL0();
	WANT(get && get->numMetrics <= NVML_GPM_METRIC_MAX);
	if (get->version != NVML_GPM_METRICS_GET_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	const struct nvmlGpmSample_st *a = get->sample1.handle, *b = get->sample2.handle;
	WANT(a && b && a->filled && b->filled && !memcmp(&a->at, &b->at, sizeof a->at));
	for (nvmlGpmMetric_t *m = get->metrics; m < get->metrics + get->numMetrics; m++) {
		double sm = (a->sm + b->sm) / 2.0;
		m->nvmlReturn = NVML_SUCCESS;
		switch (m->metricId) {
		case NVML_GPM_METRIC_GRAPHICS_UTIL:
		case NVML_GPM_METRIC_SM_UTIL: m->value = sm; break;
		case NVML_GPM_METRIC_SM_OCCUPANCY:
		case NVML_GPM_METRIC_ANY_TENSOR_UTIL:
		case NVML_GPM_METRIC_DRAM_BW_UTIL: m->value = sm / 2; break;
		case NVML_GPM_METRIC_PCIE_TX_PER_SEC:
		case NVML_GPM_METRIC_PCIE_RX_PER_SEC:
		case NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC:
		case NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC: m->value = 0; break;
		default: m->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
		}
	}
	return NVML_SUCCESS;
}

/* --- events --- */

struct nvmlEventSet_st {
	uint64_t seen, types[MAX_GPUS];
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
	CALL0();
	WANT(set);
	set->handle = calloc(1, sizeof *set->handle);
	if (!set->handle) return NVML_ERROR_MEMORY;
	set->handle->seen = state->seq; /* what happened before is nobody's */
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
	CALL0();
	WANT(set.handle);
	free(set.handle);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
	CALL(device);
	WANT(types && at.gi == NONE);
	*types = nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError | nvmlEventTypeXidCriticalError | nvmlEventTypeGpuUnavailableError |
	         nvmlEventTypeGpuRecoveryAction;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
	CALL(device);
	WANT(set.handle && at.gi == NONE);
	set.handle->types[at.gpu] |= types;
	return NVML_SUCCESS;
}

/* next finds the oldest event that the set waits for and has not seen. */
static int next(struct nvmlEventSet_st *set, nvmlEventData_t *out) {
	if (state->seq > MAX_EVENTS && set->seen < state->seq - MAX_EVENTS) set->seen = state->seq - MAX_EVENTS;
	if (set->seen > state->seq) set->seen = 0; /* the state is a new one */
	while (set->seen < state->seq) {
		const struct event *e = &state->event[++set->seen % MAX_EVENTS];
		if (!(set->types[e->gpu] & e->type)) continue;
		*out = (nvmlEventData_t){{handle_of((struct place){e->gpu, NONE, NONE})}, e->type, e->data, e->gi, e->ci};
		return 1;
	}
	return 0;
}

static nvmlReturn_t wait(nvmlEventSet_t set, nvmlEventData_t *out, unsigned ms) {
	unsigned long long end = micros() + ms * 1000ull;
	nvmlReturn_t r = enter("nvmlEventSetWait", NULL, NULL);
	if (r == NVML_SUCCESS && !(set.handle && out)) r = NVML_ERROR_INVALID_ARGUMENT;
	while (r == NVML_SUCCESS && !next(set.handle, out)) {
		unlock();
		unsigned long long now = micros();
		if (now >= end) return NVML_ERROR_TIMEOUT;
		usleep(end - now < 5000 ? (useconds_t)(end - now) : 5000);
		if (!relock()) r = NVML_ERROR_UNINITIALIZED;
	}
	unlock();
	return r;
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *out, unsigned ms) {
	nvmlReturn_t r = wait(set, out, ms);
	if (r == NVML_SUCCESS) out->gpuInstanceId = out->computeInstanceId = NONE;
	return r;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *out, unsigned ms) { return wait(set, out, ms); }

/* MIG: modes, GPU instances, compute instances, and the devices that they are. */
#include <stdio.h>

#include "mock.h"

#define NEED_MIG_BOARD()                                              \
	do {                                                          \
		if (at.gi != NONE) return NVML_ERROR_INVALID_ARGUMENT; \
		if (board->profiles == 0) return NVML_ERROR_NOT_SUPPORTED; \
	} while (0)

#define NEED_MIG_ON()                                       \
	do {                                                \
		NEED_MIG_BOARD();                           \
		if (!gpu->mig) return NVML_ERROR_NOT_SUPPORTED; \
	} while (0)

#define NEED_ROOT()                                              \
	do {                                                     \
		if (!settings.root) return NVML_ERROR_NO_PERMISSION; \
	} while (0)

/* --- mode --- */

int has_instances(const struct gpu *g) {
	for (unsigned i = 0; i < MAX_GIS; i++)
		if (g->gi[i].used) return 1;
	return 0;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
	CALL(device);
	WANT(current && pending);
	NEED_MIG_BOARD();
	*current = gpu->mig;
	*pending = gpu->pending;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned mode, nvmlReturn_t *activation) {
	CALL(device);
	WANT(activation && mode <= 1);
	NEED_MIG_BOARD();
	NEED_ROOT();
	struct proc on[MAX_PROCS];
	gpu->pending = mode;
	*activation = NVML_SUCCESS;
	if (gpu->mig == mode) return NVML_SUCCESS;
	if (has_instances(gpu) || procs_on(at, on) > 0)
		*activation = NVML_ERROR_IN_USE;
	else if (board->arch < NVML_DEVICE_ARCH_HOPPER && !settings.immediate)
		*activation = NVML_ERROR_RESET_REQUIRED;
	else
		gpu->mig = mode;
	return NVML_SUCCESS;
}

/* --- GPU instances --- */

static const struct profile *by_kind(const struct board *b, unsigned kind) {
	for (unsigned i = 0; i < b->profiles; i++)
		if (b->profile[i].kind == kind) return &b->profile[i];
	return NULL;
}

static const struct profile *by_id(const struct board *b, unsigned id) {
	for (unsigned i = 0; i < b->profiles; i++)
		if (b->profile[i].id == id) return &b->profile[i];
	return NULL;
}

static unsigned capabilities(const struct profile *p) { return strstr(p->name, "gfx") ? NVML_GPU_INSTANCE_PROFILE_CAPS_GFX : 0; }

static nvmlReturn_t say(const struct profile *p, nvmlGpuInstanceProfileInfo_v2_t *out) {
	if (out->version == nvmlGpuInstanceProfileInfo_v3) {
		nvmlGpuInstanceProfileInfo_v3_t *o = (void *)out;
		*o = (nvmlGpuInstanceProfileInfo_v3_t){o->version, p->id, p->slices, p->most, p->sms, p->copy, p->dec, p->enc, p->jpg, p->ofa, p->mib, "", capabilities(p)};
		return put(o->name, sizeof o->name, p->name), NVML_SUCCESS;
	}
	if (out->version != nvmlGpuInstanceProfileInfo_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	*out = (nvmlGpuInstanceProfileInfo_v2_t){out->version, p->id, 0, p->slices, p->most, p->sms, p->copy, p->dec, p->enc, p->jpg, p->ofa, p->mib, ""};
	return put(out->name, sizeof out->name, p->name), NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned kind, nvmlGpuInstanceProfileInfo_t *info) {
	CALL(device);
	WANT(info && kind < NVML_GPU_INSTANCE_PROFILE_COUNT);
	NEED_MIG_BOARD();
	const struct profile *p = by_kind(board, kind);
	if (!p) return NVML_ERROR_NOT_SUPPORTED;
	*info = (nvmlGpuInstanceProfileInfo_t){p->id, 0, p->slices, p->most, p->sms, p->copy, p->dec, p->enc, p->jpg, p->ofa, p->mib};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned kind, nvmlGpuInstanceProfileInfo_v2_t *info) {
	CALL(device);
	WANT(info && kind < NVML_GPU_INSTANCE_PROFILE_COUNT);
	NEED_MIG_BOARD();
	const struct profile *p = by_kind(board, kind);
	return p ? say(p, info) : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device, unsigned id, nvmlGpuInstanceProfileInfo_v2_t *info) {
	CALL(device);
	WANT(info);
	NEED_MIG_BOARD();
	const struct profile *p = by_id(board, id);
	return p ? say(p, info) : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t placements(const struct profile *p, nvmlGpuInstancePlacement_t *out, unsigned *count) {
	unsigned n = 0;
	for (unsigned s = 0; s < 32; s++)
		if (p->starts >> s & 1) {
			if (out) out[n] = (nvmlGpuInstancePlacement_t){s, p->size};
			n++;
		}
	*count = n;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned id, nvmlGpuInstancePlacement_t *out, unsigned *count) {
	CALL(device);
	WANT(count);
	NEED_MIG_BOARD();
	const struct profile *p = by_id(board, id);
	return p ? placements(p, out, count) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements(nvmlDevice_t device, unsigned id, nvmlGpuInstancePlacement_t *out, unsigned *count) {
	CALL(device);
	WANT(count);
	NEED_MIG_BOARD();
	const struct profile *p = by_id(board, id);
	return p ? placements(p, out, count) : NVML_ERROR_INVALID_ARGUMENT;
}

/* room tells whether an instance may be made there: memory units, compute slices, and how many the profile may have. */
static int room(const struct gpu *g, const struct board *b, const struct profile *p, unsigned start) {
	unsigned slices = p->slices, same = 0;
	for (unsigned i = 0; i < MAX_GIS; i++) {
		if (!g->gi[i].used) continue;
		const struct profile *q = &b->profile[g->gi[i].profile];
		if (start < g->gi[i].start + q->size && g->gi[i].start < start + p->size) return 0;
		slices += q->slices;
		same += q == p;
	}
	return slices <= b->slices && same < p->most;
}

/* id_at numbers instances as drivers were seen to: the GPU is 0, halves are 1 and 2, quarters 3 to 6, eighths 7 to 14.
 * So an id comes back when the place does. */
static unsigned id_at(const struct board *b, const struct profile *p, unsigned start) {
	return b->units / p->size - 1 + start / p->size;
}

nvmlReturn_t create_gi(unsigned n, unsigned profile, unsigned start, unsigned *id) {
	const struct board *b = settings.board[n];
	const struct profile *p = by_id(b, profile);
	struct gpu *g = &state->gpu[n];
	if (!p || start >= 32 || !(p->starts >> start & 1)) return NVML_ERROR_INVALID_ARGUMENT;
	if (!room(g, b, p, start)) return NVML_ERROR_INSUFFICIENT_RESOURCES;
	*id = id_at(b, p, start);
	g->gi[*id] = (struct gi){.profile = (unsigned)(p - b->profile), .start = start};
	g->gi[*id].used = 1;
	return NVML_SUCCESS;
}

/* give makes an instance and its handle. */
static nvmlReturn_t give(struct place at, unsigned profile, unsigned start, nvmlGpuInstance_t *out) {
	unsigned id;
	nvmlReturn_t r = create_gi(at.gpu, profile, start, &id);
	if (r == NVML_SUCCESS) out->handle = (void *)handle_of((struct place){at.gpu, id, NONE});
	return r;
}

nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned profile, nvmlGpuInstance_t *out) {
	CALL(device);
	WANT(out);
	NEED_MIG_ON();
	NEED_ROOT();
	const struct profile *p = by_id(board, profile);
	WANT(p);
	for (unsigned s = 32; s-- > 0;) /* from the end, as drivers do */
		if (p->starts >> s & 1 && room(gpu, board, p, s)) return give(at, profile, s, out);
	return NVML_ERROR_INSUFFICIENT_RESOURCES;
}

nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned profile, const nvmlGpuInstancePlacement_t *where, nvmlGpuInstance_t *out) {
	CALL(device);
	WANT(where && out);
	NEED_MIG_ON();
	NEED_ROOT();
	const struct profile *p = by_id(board, profile);
	WANT(p && where->size == p->size);
	return give(at, profile, where->start, out);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned profile, unsigned *count) {
	CALL(device);
	WANT(count);
	NEED_MIG_ON();
	const struct profile *p = by_id(board, profile);
	WANT(p);
	struct gpu trial = *gpu;
	*count = 0;
	for (unsigned s = 0; s < 32; s++)
		if (p->starts >> s & 1 && room(&trial, board, p, s)) {
			trial.gi[id_at(board, p, s)] = (struct gi){.used = 1, .profile = (unsigned)(p - board->profile), .start = s};
			++*count;
		}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned profile, nvmlGpuInstance_t *out, unsigned *count) {
	CALL(device);
	WANT(out && count);
	NEED_MIG_ON();
	const struct profile *p = by_id(board, profile);
	WANT(p);
	*count = 0;
	for (unsigned i = 0; i < MAX_GIS; i++)
		if (gpu->gi[i].used && &board->profile[gpu->gi[i].profile] == p) out[(*count)++].handle = (void *)handle_of((struct place){at.gpu, i, NONE});
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *out) {
	CALL(device);
	WANT(out);
	NEED_MIG_ON();
	if (id >= MAX_GIS || !gpu->gi[id].used) return NVML_ERROR_NOT_FOUND;
	out->handle = (void *)handle_of((struct place){at.gpu, id, NONE});
	return NVML_SUCCESS;
}

/* CALL_GI begins a function on a GPU instance, which must stand. */
#define CALL_GI(h)                                              \
	CALL(h);                                                \
	WANT(at.gi != NONE && at.ci == NONE);                   \
	struct gi *gi = &gpu->gi[at.gi];                        \
	if (!gi->used) return NVML_ERROR_NOT_FOUND;             \
	const struct profile *profile = &board->profile[gi->profile]; \
	(void)profile

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info) {
	CALL_GI(instance);
	WANT(info);
	*info = (nvmlGpuInstanceInfo_t){{handle_of((struct place){at.gpu, NONE, NONE})}, at.gi, profile->id, {gi->start, profile->size}};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance) {
	CALL_GI(instance);
	NEED_ROOT();
	struct proc on[MAX_PROCS];
	for (unsigned i = 0; i < MAX_CIS; i++)
		if (gi->ci[i].used) return NVML_ERROR_IN_USE;
	if (procs_on(at, on) > 0) return NVML_ERROR_IN_USE;
	gi->used = 0;
	return NVML_SUCCESS;
}

/* --- compute instances: the kind, the id and the slices of their profiles go together --- */

static const unsigned ci_slices[NVML_COMPUTE_INSTANCE_PROFILE_COUNT] = {1, 2, 3, 4, 7};

/* ci_fits tells whether a GPU instance offers compute instances of a kind: whole divisors of memory do not matter, but a
 * 4g has none of three slices. */
static int ci_fits(const struct profile *p, unsigned kind) {
	return kind < NVML_COMPUTE_INSTANCE_PROFILE_COUNT && ci_slices[kind] > 0 && ci_slices[kind] <= p->slices && !(ci_slices[kind] == 3 && p->slices == 4);
}

static void ci_name(const struct profile *p, unsigned slices, char *out) {
	if (slices == p->slices)
		snprintf(out, NVML_DEVICE_NAME_V2_BUFFER_SIZE, "%s", p->name);
	else
		snprintf(out, NVML_DEVICE_NAME_V2_BUFFER_SIZE, "%uc.%s", slices, p->name);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned kind, unsigned engine, nvmlComputeInstanceProfileInfo_t *info) {
	CALL_GI(instance);
	WANT(info && kind < NVML_COMPUTE_INSTANCE_PROFILE_COUNT && engine < NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT);
	if (!ci_fits(profile, kind)) return NVML_ERROR_NOT_SUPPORTED;
	unsigned n = ci_slices[kind];
	*info = (nvmlComputeInstanceProfileInfo_t){kind, n, profile->slices / n, profile->sms * n / profile->slices, profile->copy, profile->dec, profile->enc, profile->jpg, profile->ofa};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t instance, unsigned kind, unsigned engine, nvmlComputeInstanceProfileInfo_v2_t *info) {
	CALL_GI(instance);
	WANT(info && kind < NVML_COMPUTE_INSTANCE_PROFILE_COUNT && engine < NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT);
	if (info->version != nvmlComputeInstanceProfileInfo_v2 && info->version != nvmlComputeInstanceProfileInfo_v3) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (!ci_fits(profile, kind)) return NVML_ERROR_NOT_SUPPORTED;
	unsigned n = ci_slices[kind];
	if (info->version == nvmlComputeInstanceProfileInfo_v3) ((nvmlComputeInstanceProfileInfo_v3_t *)info)->capabilities = 0;
	*info = (nvmlComputeInstanceProfileInfo_v2_t){info->version, kind, n, profile->slices / n, profile->sms * n / profile->slices, profile->copy, profile->dec, profile->enc, profile->jpg, profile->ofa, ""};
	ci_name(profile, n, info->name);
	return NVML_SUCCESS;
}

static int ci_room(const struct gi *gi, unsigned slices, unsigned start) {
	for (unsigned i = 0; i < MAX_CIS; i++)
		if (gi->ci[i].used && start < gi->ci[i].start + gi->ci[i].profile && gi->ci[i].start < start + slices) return 0;
	return 1;
}

nvmlReturn_t create_ci(struct gi *gi, unsigned slices, unsigned start, unsigned *id) {
	if (!ci_room(gi, slices, start)) return NVML_ERROR_INSUFFICIENT_RESOURCES;
	for (unsigned i = 0; i < MAX_CIS; i++)
		if (!gi->ci[i].used) {
			*id = i;
			gi->ci[i] = (struct ci){0, slices, start};
			gi->ci[i].used = 1;
			return NVML_SUCCESS;
		}
	return NVML_ERROR_INSUFFICIENT_RESOURCES;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t instance, unsigned kind, nvmlComputeInstancePlacement_t *out, unsigned *count) {
	CALL_GI(instance);
	WANT(count && ci_fits(profile, kind));
	*count = 0;
	for (unsigned s = 0; s + ci_slices[kind] <= profile->slices; s += ci_slices[kind]) {
		if (out) out[*count] = (nvmlComputeInstancePlacement_t){s, ci_slices[kind]};
		++*count;
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t instance, unsigned kind, unsigned *count) {
	CALL_GI(instance);
	WANT(count && ci_fits(profile, kind));
	*count = 0;
	for (unsigned s = 0; s + ci_slices[kind] <= profile->slices; s += ci_slices[kind]) *count += (unsigned)ci_room(gi, ci_slices[kind], s);
	return NVML_SUCCESS;
}

static nvmlReturn_t give_ci(struct place at, struct gi *gi, unsigned slices, unsigned start, nvmlComputeInstance_t *out) {
	unsigned id;
	nvmlReturn_t r = create_ci(gi, slices, start, &id);
	if (r == NVML_SUCCESS) out->handle = (void *)handle_of((struct place){at.gpu, at.gi, id});
	return r;
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance, unsigned kind, nvmlComputeInstance_t *out) {
	CALL_GI(instance);
	WANT(out && ci_fits(profile, kind));
	NEED_ROOT();
	for (unsigned s = 0; s + ci_slices[kind] <= profile->slices; s++)
		if (ci_room(gi, ci_slices[kind], s)) return give_ci(at, gi, ci_slices[kind], s, out);
	return NVML_ERROR_INSUFFICIENT_RESOURCES;
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t instance, unsigned kind, const nvmlComputeInstancePlacement_t *where, nvmlComputeInstance_t *out) {
	CALL_GI(instance);
	WANT(out && where && ci_fits(profile, kind) && where->size == ci_slices[kind] && where->start + where->size <= profile->slices);
	NEED_ROOT();
	return give_ci(at, gi, ci_slices[kind], where->start, out);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned kind, nvmlComputeInstance_t *out, unsigned *count) {
	CALL_GI(instance);
	WANT(out && count && ci_fits(profile, kind));
	*count = 0;
	for (unsigned i = 0; i < MAX_CIS; i++)
		if (gi->ci[i].used && gi->ci[i].profile == ci_slices[kind]) out[(*count)++].handle = (void *)handle_of((struct place){at.gpu, at.gi, i});
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned id, nvmlComputeInstance_t *out) {
	CALL_GI(instance);
	WANT(out);
	if (id >= MAX_CIS || !gi->ci[id].used) return NVML_ERROR_NOT_FOUND;
	out->handle = (void *)handle_of((struct place){at.gpu, at.gi, id});
	return NVML_SUCCESS;
}

static nvmlReturn_t ci_info(nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info, int v2) {
	CALL_AS("nvmlComputeInstanceGetInfo", instance);
	WANT(info && at.ci != NONE);
	if (!exists(at)) return NVML_ERROR_NOT_FOUND;
	const struct ci *ci = &gpu->gi[at.gi].ci[at.ci];
	unsigned kind = 0;
	while (ci_slices[kind] != ci->profile) kind++;
	info->device.handle = handle_of((struct place){at.gpu, NONE, NONE});
	info->gpuInstance.handle = (void *)handle_of((struct place){at.gpu, at.gi, NONE});
	info->id = at.ci;
	info->profileId = kind;
	if (v2) info->placement = (nvmlComputeInstancePlacement_t){ci->start, ci->profile};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info) { return ci_info(instance, info, 0); }
nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info) { return ci_info(instance, info, 1); }

nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t instance) {
	CALL(instance);
	WANT(at.ci != NONE);
	NEED_ROOT();
	struct proc on[MAX_PROCS];
	if (!exists(at)) return NVML_ERROR_NOT_FOUND;
	if (procs_on(at, on) > 0) return NVML_ERROR_IN_USE;
	gpu->gi[at.gi].ci[at.ci].used = 0;
	return NVML_SUCCESS;
}

/* --- MIG devices: a compute instance is one --- */

int exists(struct place p) {
	const struct gpu *g = &state->gpu[p.gpu];
	if (p.gi == NONE) return 1;
	return g->gi[p.gi].used && (p.ci == NONE || g->gi[p.gi].ci[p.ci].used);
}

const struct profile *profile_of(struct place p) { return &settings.board[p.gpu]->profile[state->gpu[p.gpu].gi[p.gi].profile]; }

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is) {
	CALL(device);
	WANT(is);
	*is = at.gi != NONE;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id) {
	CALL(device);
	WANT(id && at.ci != NONE);
	if (!exists(at)) return NVML_ERROR_NOT_FOUND;
	*id = at.gi;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id) {
	CALL(device);
	WANT(id && at.ci != NONE);
	if (!exists(at)) return NVML_ERROR_NOT_FOUND;
	*id = at.ci;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
	CALL(device);
	WANT(count && at.gi == NONE);
	*count = gpu->mig ? board->slices : 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *out) {
	CALL(device);
	WANT(out);
	NEED_MIG_ON();
	WANT(index < board->slices);
	for (unsigned gi = 0; gi < MAX_GIS; gi++)
		for (unsigned ci = 0; ci < MAX_CIS; ci++)
			if (exists((struct place){at.gpu, gi, ci}) && index-- == 0) {
				out->handle = handle_of((struct place){at.gpu, gi, ci});
				return NVML_SUCCESS;
			}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *out) {
	CALL(device);
	WANT(out && at.ci != NONE);
	out->handle = handle_of((struct place){at.gpu, NONE, NONE});
	return NVML_SUCCESS;
}

static nvmlReturn_t attributes(nvmlDevice_t device, nvmlDeviceAttributes_t *out) {
	CALL_AS("nvmlDeviceGetAttributes", device);
	WANT(out);
	if (at.ci == NONE) return NVML_ERROR_NOT_SUPPORTED;
	if (!exists(at)) return NVML_ERROR_NOT_FOUND;
	const struct profile *p = profile_of(at);
	unsigned n = gpu->gi[at.gi].ci[at.ci].profile;
	*out = (nvmlDeviceAttributes_t){p->sms * n / p->slices, p->copy, p->dec, p->enc, p->jpg, p->ofa, p->slices, n, p->mib};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *out) { return attributes(device, out); }
nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *out) { return attributes(device, out); }

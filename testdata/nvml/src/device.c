/* What GPUs are: names, ids, memory, modes, errors. */
#include <stdio.h>
#include <stdlib.h>

#include "mock.h"

#define NEED_GPU()                                                     \
	do {                                                           \
		if (at.gi != NONE) return NVML_ERROR_INVALID_ARGUMENT; \
	} while (0)

/* put copies a text into a caller's buffer. */
nvmlReturn_t put(char *to, unsigned length, const char *text) {
	if (!to) return NVML_ERROR_INVALID_ARGUMENT;
	if (strlen(text) >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(to, text);
	return NVML_SUCCESS;
}

static const struct {
	const char *name, *text;
} returns[] = {
	[NVML_SUCCESS] = {"SUCCESS", "Success"},
	[NVML_ERROR_UNINITIALIZED] = {"UNINITIALIZED", "Uninitialized"},
	[NVML_ERROR_INVALID_ARGUMENT] = {"INVALID_ARGUMENT", "Invalid Argument"},
	[NVML_ERROR_NOT_SUPPORTED] = {"NOT_SUPPORTED", "Not Supported"},
	[NVML_ERROR_NO_PERMISSION] = {"NO_PERMISSION", "Insufficient Permissions"},
	[NVML_ERROR_NOT_FOUND] = {"NOT_FOUND", "Not Found"},
	[NVML_ERROR_INSUFFICIENT_SIZE] = {"INSUFFICIENT_SIZE", "Insufficient Size"},
	[NVML_ERROR_DRIVER_NOT_LOADED] = {"DRIVER_NOT_LOADED", "Driver Not Loaded"},
	[NVML_ERROR_TIMEOUT] = {"TIMEOUT", "Timeout"},
	[NVML_ERROR_FUNCTION_NOT_FOUND] = {"FUNCTION_NOT_FOUND", "Function Not Found"},
	[NVML_ERROR_GPU_IS_LOST] = {"GPU_IS_LOST", "GPU is lost"},
	[NVML_ERROR_RESET_REQUIRED] = {"RESET_REQUIRED", "GPU requires reset"},
	[NVML_ERROR_OPERATING_SYSTEM] = {"OPERATING_SYSTEM", "Blocked by the operating system"},
	[NVML_ERROR_LIB_RM_VERSION_MISMATCH] = {"LIB_RM_VERSION_MISMATCH", "Driver/library version mismatch"},
	[NVML_ERROR_IN_USE] = {"IN_USE", "In use by another client"},
	[NVML_ERROR_MEMORY] = {"MEMORY", "Insufficient Memory"},
	[NVML_ERROR_NO_DATA] = {"NO_DATA", "No data"},
	[NVML_ERROR_INSUFFICIENT_RESOURCES] = {"INSUFFICIENT_RESOURCES", "Insufficient Resources"},
	[NVML_ERROR_ARGUMENT_VERSION_MISMATCH] = {"ARGUMENT_VERSION_MISMATCH", "Argument version mismatch"},
};

int by_name(const char *name) {
	if (!strcmp(name, "UNKNOWN")) return NVML_ERROR_UNKNOWN;
	for (int i = 0; i < (int)(sizeof returns / sizeof *returns); i++)
		if (returns[i].name && !strcmp(returns[i].name, name)) return i;
	return -1;
}

const char *nvmlErrorString(nvmlReturn_t r) {
	if (r >= 0 && (size_t)r < sizeof returns / sizeof *returns && returns[r].text) return returns[r].text;
	return "Unknown Error";
}

/* --- system --- */

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
	CALL0();
	return put(version, length, settings.driver);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
	CALL0();
	char text[64];
	snprintf(text, sizeof text, "%d.%s", settings.cuda / 1000, settings.driver);
	return put(version, length, text);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
	CALL0();
	WANT(version);
	*version = settings.cuda;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
	CALL0();
	WANT(version);
	*version = settings.cuda;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
	CALL0();
	char path[64], text[256] = "";
	snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
	FILE *f = fopen(path, "re");
	if (!f) return NVML_ERROR_NOT_FOUND;
	size_t n = fread(text, 1, sizeof text - 1, f);
	fclose(f);
	text[n] = 0;
	return put(name, length, text);
}

/* --- which GPU --- */

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
	CALL0();
	WANT(count);
	*count = settings.gpus;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
	CALL0();
	WANT(device && index < settings.gpus);
	if (settings.gpu[index].lost) return NVML_ERROR_GPU_IS_LOST;
	device->handle = handle_of((struct place){index, NONE, NONE});
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device) { return nvmlDeviceGetHandleByIndex_v2(index, device); }

/* uuid_of hashes what the device is, so that the same GPU, GI and CI have the same UUID again. */
void uuid_of(struct place p, char out[64]) {
	char text[160];
	snprintf(text, sizeof text, "%s/%s/%u/%d/%d", settings.seed, settings.board[p.gpu]->key, p.gpu, (int)p.gi, (int)p.ci);
	uint64_t a = hash(0, text, strlen(text)), b = hash(a, "more", 4);
	snprintf(out, 64, "%s-%08x-%04x-5%03x-%04x-%012llx", p.gi == NONE ? "GPU" : "MIG", (unsigned)(a >> 32), (unsigned)(a >> 16 & 0xffff),
	         (unsigned)(a & 0xfff), (unsigned)(b >> 50 & 0x3fff) | 0x8000, (unsigned long long)(b & 0xffffffffffff));
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length) {
	CALL(device);
	if (!exists(at)) return NVML_ERROR_NOT_FOUND;
	WANT(at.gi == NONE || at.ci != NONE);
	char text[64];
	uuid_of(at, text);
	return put(uuid, length, text);
}

/* find looks a UUID up among GPUs and MIG devices. */
static nvmlReturn_t find(const char *uuid, nvmlDevice_t *device) {
	char text[64];
	for (unsigned g = 0; g < settings.gpus; g++) {
		struct place p = {g, NONE, NONE};
		uuid_of(p, text);
		int hit = !strcmp(text, uuid);
		for (unsigned i = 0; !hit && state->gpu[g].mig && i < MAX_GIS * MAX_CIS; i++) {
			p = (struct place){g, i / MAX_CIS, i % MAX_CIS};
			if (exists(p)) uuid_of(p, text), hit = !strcmp(text, uuid);
		}
		if (!hit) continue;
		if (settings.gpu[g].lost) return NVML_ERROR_GPU_IS_LOST;
		device->handle = handle_of(p);
		return NVML_SUCCESS;
	}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
	CALL0();
	WANT(uuid && device);
	return find(uuid, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *device) {
	CALL0();
	WANT(uuid && device && uuid->type == NVML_UUID_TYPE_ASCII);
	if (uuid->version != nvmlUUID_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	return find(uuid->value.str, device);
}

static void bus_of(unsigned gpu, nvmlPciInfo_t *p) {
	memset(p, 0, sizeof *p);
	p->bus = 0x1b + gpu * 0x10;
	p->pciDeviceId = settings.board[gpu]->device << 16 | 0x10de;
	p->pciSubSystemId = 0x10de;
	snprintf(p->busId, sizeof p->busId, "%08X:%02X:00.0", p->domain, p->bus);
	snprintf(p->busIdLegacy, sizeof p->busIdLegacy, "%04X:%02X:00.0", p->domain, p->bus & 0xff);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
	CALL(device);
	WANT(pci);
	NEED_GPU();
	bus_of(at.gpu, pci);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci) { return nvmlDeviceGetPciInfo_v3(device, pci); }
nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci) { return nvmlDeviceGetPciInfo_v3(device, pci); }

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device) {
	CALL0();
	WANT(id && device);
	for (unsigned g = 0; g < settings.gpus; g++) {
		nvmlPciInfo_t pci;
		bus_of(g, &pci);
		if (strcasecmp(id, pci.busId) && strcasecmp(id, pci.busIdLegacy)) continue;
		if (settings.gpu[g].lost) return NVML_ERROR_GPU_IS_LOST;
		device->handle = handle_of((struct place){g, NONE, NONE});
		return NVML_SUCCESS;
	}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice_t *device) { return nvmlDeviceGetHandleByPciBusId_v2(id, device); }

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
	CALL(device);
	WANT(index);
	NEED_GPU();
	*index = at.gpu;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor) {
	CALL(device);
	WANT(minor);
	NEED_GPU();
	*minor = at.gpu;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
	CALL(device);
	if (!exists(at)) return NVML_ERROR_NOT_FOUND;
	char text[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
	snprintf(text, sizeof text, "%s%s%s", board->name, at.gi == NONE ? "" : " MIG ", at.gi == NONE ? "" : profile_of(at)->name);
	return put(name, length, text);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned length) {
	CALL(device);
	NEED_GPU();
	char text[32];
	snprintf(text, sizeof text, "16500000%05u", at.gpu);
	return put(serial, length, text);
}

/* --- what it is --- */

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *brand) {
	CALL(device);
	WANT(brand);
	*brand = NVML_BRAND_NVIDIA;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *arch) {
	CALL(device);
	WANT(arch);
	*arch = board->arch;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
	CALL(device);
	WANT(major && minor);
	*major = (int)board->major;
	*minor = (int)board->minor;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned *cores) {
	CALL(device);
	WANT(cores);
	NEED_GPU();
	*cores = board->sms * 128;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, nvmlGpuVirtualizationMode_t *mode) {
	CALL(device);
	WANT(mode);
	*mode = NVML_GPU_VIRTUALIZATION_MODE_NONE;
	return NVML_SUCCESS;
}

/* memory in MiB: all of it, what the driver keeps, what processes hold. */
static void memory(struct place at, unsigned *total, unsigned *reserved, unsigned *used) {
	unsigned sm;
	*total = settings.board[at.gpu]->mib;
	*reserved = settings.board[at.gpu]->reserved;
	if (at.gi != NONE) *total = profile_of(at)->mib, *reserved = 16;
	sum_procs((struct place){at.gpu, at.gi, NONE}, used, &sm);
	if (*used > *total - *reserved) *used = *total - *reserved;
}

#define MIB(n) ((unsigned long long)(n) << 20)

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out) {
	CALL(device);
	WANT(out);
	if (!exists(at)) return NVML_ERROR_NOT_FOUND;
	unsigned total, reserved, used;
	memory(at, &total, &reserved, &used);
	*out = (nvmlMemory_t){MIB(total), MIB(total - reserved - used), MIB(reserved + used)};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out) {
	CALL(device);
	WANT(out);
	if (out->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (!exists(at)) return NVML_ERROR_NOT_FOUND;
	unsigned total, reserved, used;
	memory(at, &total, &reserved, &used);
	*out = (nvmlMemory_v2_t){out->version, MIB(total), MIB(reserved), MIB(total - reserved - used), MIB(used)};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *out) {
	CALL(device);
	WANT(out);
	NEED_GPU();
	*out = (nvmlBAR1Memory_t){MIB(131072), MIB(131070), MIB(2)};
	return NVML_SUCCESS;
}

/* --- modes --- */

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
	CALL(device);
	WANT(mode);
	NEED_GPU();
	*mode = gpu->persistence ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t mode) {
	CALL(device);
	NEED_GPU();
	if (!settings.root) return NVML_ERROR_NO_PERMISSION;
	gpu->persistence = mode == NVML_FEATURE_ENABLED;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode) {
	CALL(device);
	WANT(mode);
	*mode = (nvmlComputeMode_t)gpu->compute;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, nvmlComputeMode_t mode) {
	CALL(device);
	NEED_GPU();
	WANT((unsigned)mode < NVML_COMPUTEMODE_COUNT);
	if (!settings.root) return NVML_ERROR_NO_PERMISSION;
	if (gpu->mig && mode == NVML_COMPUTEMODE_EXCLUSIVE_PROCESS) return NVML_ERROR_NOT_SUPPORTED;
	gpu->compute = mode;
	return NVML_SUCCESS;
}

/* --- errors and throttling --- */

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current, nvmlEnableState_t *pending) {
	CALL(device);
	WANT(current && pending);
	*current = *pending = NVML_FEATURE_ENABLED;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter, unsigned long long *count) {
	CALL(device);
	WANT(count && (unsigned)type < NVML_MEMORY_ERROR_TYPE_COUNT && (unsigned)counter < NVML_ECC_COUNTER_TYPE_COUNT);
	*count = type == NVML_MEMORY_ERROR_TYPE_CORRECTED ? settings.gpu[at.gpu].corrected : settings.gpu[at.gpu].uncorrected;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter, nvmlMemoryLocation_t where,
                                             unsigned long long *count) {
	CALL(device);
	WANT(count && (unsigned)type < NVML_MEMORY_ERROR_TYPE_COUNT && (unsigned)counter < NVML_ECC_COUNTER_TYPE_COUNT);
	if (where != NVML_MEMORY_LOCATION_DRAM) return NVML_ERROR_NOT_SUPPORTED;
	*count = type == NVML_MEMORY_ERROR_TYPE_CORRECTED ? settings.gpu[at.gpu].corrected : settings.gpu[at.gpu].uncorrected;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
	CALL(device);
	WANT(corrected && uncorrected && pending && failed);
	if (at.gi != NONE || has_instances(gpu)) return NVML_ERROR_NOT_SUPPORTED;
	const unsigned *r = settings.gpu[at.gpu].remapped;
	*corrected = r[0], *uncorrected = r[1], *pending = r[2], *failed = r[3];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, nvmlRowRemapperHistogramValues_t *out) {
	CALL(device);
	WANT(out);
	if (at.gi != NONE || has_instances(gpu)) return NVML_ERROR_NOT_SUPPORTED;
	*out = (nvmlRowRemapperHistogramValues_t){.max = 640};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons) {
	CALL(device);
	WANT(reasons);
	*reasons = settings.gpu[at.gpu].clocks;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
	CALL(device);
	WANT(reasons);
	*reasons = settings.gpu[at.gpu].clocks;
	return NVML_SUCCESS;
}

static unsigned celsius(unsigned gpu) { return settings.gpu[gpu].celsius ? settings.gpu[gpu].celsius : 34; }

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned *out) {
	CALL(device);
	WANT(out && sensor == NVML_TEMPERATURE_GPU);
	*out = celsius(at.gpu);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *out) {
	CALL(device);
	WANT(out && out->sensorType == NVML_TEMPERATURE_GPU);
	out->temperature = (int)celsius(at.gpu);
	return NVML_SUCCESS;
}

static unsigned milliwatts(unsigned gpu) {
	unsigned mib, sm;
	sum_procs((struct place){gpu, NONE, NONE}, &mib, &sm);
	return 70000 + sm * 6000;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *out) {
	CALL(device);
	WANT(out);
	NEED_GPU();
	*out = milliwatts(at.gpu);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *out) {
	CALL(device);
	WANT(out);
	NEED_GPU();
	*out = 700000;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned *out) {
	CALL(device);
	WANT(out);
	NEED_GPU();
	*out = 700000;
	return NVML_SUCCESS;
}

static int major(void) { return atoi(settings.driver); }

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
	CALL(device);
	WANT(count > 0 && values);
	for (nvmlFieldValue_t *v = values; v < values + count; v++) {
		v->nvmlReturn = NVML_SUCCESS;
		v->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
		if (v->fieldId == NVML_FI_DEV_GET_GPU_RECOVERY_ACTION && major() >= 560)
			v->value.uiVal = settings.gpu[at.gpu].recovery;
		else if (v->fieldId == NVML_FI_DEV_POWER_INSTANT)
			v->value.uiVal = milliwatts(at.gpu);
		else
			v->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuTopologyLevel_t *level) {
	CALL(a);
	struct place other;
	WANT(level && place_of(b.handle, &other));
	*level = at.gpu == other.gpu ? NVML_TOPOLOGY_INTERNAL : at.gpu / 4 == other.gpu / 4 ? NVML_TOPOLOGY_NODE : NVML_TOPOLOGY_SYSTEM;
	return NVML_SUCCESS;
}

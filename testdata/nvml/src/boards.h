/*
 * The boards that the mock knows. The numbers come from NVIDIA's MIG user guide, from public captures of nvidia-smi (to 128 MiB),
 * and, where neither had one, from us: the memory of the H200 and the RTX PRO 6000, and what 3g, 4g and 7g of a B200
 * hold (marked "ours").
 */
#ifndef BOARDS_H
#define BOARDS_H

struct profile {
	unsigned kind; /* NVML_GPU_INSTANCE_PROFILE_*, by which nvmlDeviceGetGpuInstanceProfileInfo is asked */
	unsigned id;   /* what the driver calls it, and creates by */
	const char *name;
	unsigned slices, size, most, sms, copy, dec, enc, jpg, ofa, mib;
	unsigned starts; /* bit s: may start at memory unit s */
};

struct board {
	const char *key, *name;
	unsigned arch, major, minor, device, units, slices, sms, mib, reserved;
	unsigned profiles;
	struct profile profile[12];
};

static const struct board boards[] = {
	{"A100-40GB", "NVIDIA A100-SXM4-40GB", NVML_DEVICE_ARCH_AMPERE, 8, 0, 0x20b0, 8, 7, 108, 40960, 518, 7, {
		{0, 19, "1g.5gb", 1, 1, 7, 14, 1, 0, 0, 0, 0, 4864, 0x7f},
		{7, 20, "1g.5gb+me", 1, 1, 1, 14, 1, 1, 0, 1, 1, 4864, 0x7f},
		{9, 15, "1g.10gb", 1, 2, 4, 14, 1, 1, 0, 0, 0, 9856, 0x55},
		{1, 14, "2g.10gb", 2, 2, 3, 28, 2, 1, 0, 0, 0, 9856, 0x15},
		{2, 9, "3g.20gb", 3, 4, 2, 42, 3, 2, 0, 0, 0, 19968, 0x11},
		{3, 5, "4g.20gb", 4, 4, 1, 56, 4, 2, 0, 0, 0, 19968, 0x1},
		{4, 0, "7g.40gb", 7, 8, 1, 98, 7, 5, 0, 1, 1, 40192, 0x1},
	}},
	{"A100-80GB", "NVIDIA A100-SXM4-80GB", NVML_DEVICE_ARCH_AMPERE, 8, 0, 0x20b2, 8, 7, 108, 81920, 640, 7, {
		{0, 19, "1g.10gb", 1, 1, 7, 14, 1, 0, 0, 0, 0, 9728, 0x7f},
		{7, 20, "1g.10gb+me", 1, 1, 1, 14, 1, 1, 0, 1, 1, 9728, 0x7f},
		{9, 15, "1g.20gb", 1, 2, 4, 14, 1, 1, 0, 0, 0, 19968, 0x55},
		{1, 14, "2g.20gb", 2, 2, 3, 28, 2, 1, 0, 0, 0, 19968, 0x15},
		{2, 9, "3g.40gb", 3, 4, 2, 42, 3, 2, 0, 0, 0, 40192, 0x11},
		{3, 5, "4g.40gb", 4, 4, 1, 56, 4, 2, 0, 0, 0, 40192, 0x1},
		{4, 0, "7g.80gb", 7, 8, 1, 98, 7, 5, 0, 1, 1, 80896, 0x1},
	}},
	{"H100-80GB", "NVIDIA H100 80GB HBM3", NVML_DEVICE_ARCH_HOPPER, 9, 0, 0x2330, 8, 7, 132, 81559, 480, 7, {
		{0, 19, "1g.10gb", 1, 1, 7, 16, 1, 1, 0, 1, 0, 9984, 0x7f},
		{7, 20, "1g.10gb+me", 1, 1, 1, 16, 1, 1, 0, 1, 1, 9984, 0x7f},
		{9, 15, "1g.20gb", 1, 2, 4, 26, 1, 1, 0, 1, 0, 20096, 0x55},
		{1, 14, "2g.20gb", 2, 2, 3, 32, 2, 2, 0, 2, 0, 20096, 0x15},
		{2, 9, "3g.40gb", 3, 4, 2, 60, 3, 3, 0, 3, 0, 40448, 0x11},
		{3, 5, "4g.40gb", 4, 4, 1, 64, 4, 4, 0, 4, 0, 40448, 0x1},
		{4, 0, "7g.80gb", 7, 8, 1, 132, 8, 7, 0, 7, 1, 81152, 0x1},
	}},
	{"H200-141GB", "NVIDIA H200", NVML_DEVICE_ARCH_HOPPER, 9, 0, 0x2335, 8, 7, 132, 143771, 640, 7, {
		{0, 19, "1g.18gb", 1, 1, 7, 16, 1, 1, 0, 1, 0, 16384, 0x7f},
		{7, 20, "1g.18gb+me", 1, 1, 1, 16, 1, 1, 0, 1, 1, 16384, 0x7f},
		{9, 15, "1g.35gb", 1, 2, 4, 26, 1, 1, 0, 1, 0, 33024, 0x55},
		{1, 14, "2g.35gb", 2, 2, 3, 32, 2, 2, 0, 2, 0, 33024, 0x15},
		{2, 9, "3g.71gb", 3, 4, 2, 60, 3, 3, 0, 3, 0, 71168, 0x11},
		{3, 5, "4g.71gb", 4, 4, 1, 64, 4, 4, 0, 4, 0, 71168, 0x1},
		{4, 0, "7g.141gb", 7, 8, 1, 132, 8, 7, 0, 7, 1, 143360, 0x1},
	}},
	{"B200-180GB", "NVIDIA B200", NVML_DEVICE_ARCH_BLACKWELL, 10, 0, 0x2901, 8, 7, 148, 183359, 728, 7, {
		{0, 19, "1g.23gb", 1, 1, 7, 18, 2, 1, 0, 1, 0, 22528, 0x7f},
		{7, 20, "1g.23gb+me", 1, 1, 1, 18, 2, 1, 0, 1, 1, 22528, 0x7f},
		{9, 15, "1g.45gb", 1, 2, 4, 30, 2, 1, 0, 1, 0, 45312, 0x55},
		{1, 14, "2g.45gb", 2, 2, 3, 36, 4, 2, 0, 2, 0, 45312, 0x15},
		{2, 9, "3g.90gb", 3, 4, 2, 72, 6, 3, 0, 3, 0, 91136, 0x11}, /* ours */
		{3, 5, "4g.90gb", 4, 4, 1, 76, 8, 4, 0, 4, 0, 91136, 0x1}, /* ours */
		{4, 0, "7g.180gb", 7, 8, 1, 148, 16, 7, 0, 7, 1, 182272, 0x1}, /* ours */
	}},
	{"RTX-PRO-6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", NVML_DEVICE_ARCH_BLACKWELL, 12, 0, 0x2bb5, 12, 4, 188, 97887, 640, 11, {
		{0, 14, "1g.24gb", 1, 3, 4, 46, 1, 1, 1, 1, 0, 24192, 0x249},
		{7, 21, "1g.24gb+me", 1, 3, 1, 46, 1, 1, 1, 1, 1, 24192, 0x249},
		{10, 47, "1g.24gb+gfx", 1, 3, 4, 46, 1, 1, 1, 1, 0, 24192, 0x249},
		{15, 65, "1g.24gb+me.all", 1, 3, 1, 46, 1, 4, 4, 4, 1, 24192, 0x249},
		{13, 67, "1g.24gb-me", 1, 3, 4, 46, 1, 0, 0, 0, 0, 24192, 0x249},
		{1, 5, "2g.48gb", 2, 6, 2, 94, 2, 2, 2, 2, 0, 48512, 0x41},
		{11, 35, "2g.48gb+gfx", 2, 6, 2, 94, 2, 2, 2, 2, 0, 48512, 0x41},
		{16, 64, "2g.48gb+me.all", 2, 6, 1, 94, 2, 4, 4, 4, 1, 48512, 0x41},
		{14, 66, "2g.48gb-me", 2, 6, 2, 94, 2, 0, 0, 0, 0, 48512, 0x41},
		{3, 0, "4g.96gb", 4, 12, 1, 188, 4, 4, 4, 4, 1, 97280, 0x1},
		{12, 32, "4g.96gb+gfx", 4, 12, 1, 188, 4, 4, 4, 4, 1, 97280, 0x1},
	}},
	{"L40S", "NVIDIA L40S", NVML_DEVICE_ARCH_ADA, 8, 9, 0x26b9, 0, 0, 142, 46068, 640, 0, {{0}}}, /* no MIG */
};

#endif

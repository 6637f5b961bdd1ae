package doctor

import (
	"time"

	"golang.org/x/sys/unix"
)

// watchClock is how long the wall clock is compared with the one that only runs on.
const watchClock = 200 * time.Millisecond

// readClock asks the kernel whether something keeps its time, and whether it is being set.
func readClock() (Clock, error) {
	var x unix.Timex
	state, err := unix.Adjtimex(&x)
	if err != nil {
		return Clock{}, err
	}
	began := time.Now()
	time.Sleep(watchClock)
	now := time.Now()
	ran := now.Sub(began)
	return Clock{
		Synced: state != unix.TIME_ERROR && x.Status&unix.STA_UNSYNC == 0, MaxError: time.Duration(x.Maxerror) * time.Microsecond,
		Step: now.Round(0).Sub(began.Round(0)) - ran, Watched: ran,
	}, nil
}

// room is the free space for this user, and the kind of the file system.
func room(dir string) (uint64, string) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, ""
	}
	kinds := map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.TMPFS_MAGIC: "tmpfs",
		unix.NFS_SUPER_MAGIC: "nfs", unix.SMB2_SUPER_MAGIC: "smb", unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.FUSE_SUPER_MAGIC: "fuse",
		0x2fc12fc1: "zfs", 0x0bd00bd0: "lustre", unix.CEPH_SUPER_MAGIC: "ceph",
	}
	return s.Bavail * uint64(s.Bsize), kinds[int64(s.Type)] //nolint:unconvert // a block size is small; Type's size differs by platform
}

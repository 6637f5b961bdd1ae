package process

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/gpupool/gpupool/internal/runner"
)

// User is whom a process runs as.
type User struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"` // beside GID
	Name   string   `json:"name,omitempty"`   // "" = the system has none for it
	Home   string   `json:"home,omitempty"`   // "" = its working directory
}

// ParseUser reads a user of this system, or UID:GID, which need not be in it.
func ParseUser(text string) (User, error) {
	uid, gid, both := strings.Cut(text, ":")
	if both {
		u, err1 := strconv.ParseUint(uid, 10, 32)
		g, err2 := strconv.ParseUint(gid, 10, 32)
		if err1 != nil || err2 != nil {
			return User{}, fmt.Errorf("user %q: expected the name of a user of this system, or UID:GID in numbers, such as 2001:2001", text)
		}
		return User{UID: uint32(u), GID: uint32(g)}, nil
	}
	known, err := user.Lookup(text)
	if err != nil {
		return User{}, fmt.Errorf("user %q: %w; add it to this system, or give UID:GID in numbers", text, err)
	}
	out := User{Name: known.Username}
	if info, err := os.Stat(known.HomeDir); err == nil && info.IsDir() {
		out.Home = known.HomeDir
	}
	ids := []string{known.Uid, known.Gid}
	groups, err := known.GroupIds()
	if err != nil {
		return User{}, fmt.Errorf("user %q: its groups: %w", text, err)
	}
	for i, id := range append(ids, groups...) {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return User{}, fmt.Errorf("user %q: id %q is not a number", text, id)
		}
		switch i {
		case 0:
			out.UID = uint32(n)
		case 1:
			out.GID = uint32(n)
		default:
			out.Groups = append(out.Groups, uint32(n))
		}
	}
	return out, nil
}

// String is the user as UID:GID.
func (u User) String() string { return fmt.Sprintf("%d:%d", u.UID, u.GID) }

// UserOf is whom the processes of a tenant run as; nil: the server's own user.
func (o Options) UserOf(tenant string) *User {
	if u, named := o.Users[tenant]; named {
		return &u
	}
	return o.DefaultUser
}

// defaultWork is where those who run as another user get their working directories: they
// cannot pass through the server's own folders.
const defaultWork = "/var/lib/gpupool/work"

// asUser says whom a member runs as, and where.
func (r *Runner) asUser(l *launch) error {
	u := r.o.UserOf(l.Spec.Tenant)
	if u == nil {
		return nil
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("tasks of tenant %s are to run as user %s, and only root may do that: run the server as root, or take it out of process.users and process.default_user", l.Spec.Tenant, u)
	}
	l.User, l.Work = u, r.workOf(l.Spec.ID)
	return nil
}

// workOf is the working directory of a member that runs as another user. Servers over
// different folders do not meet there.
func (r *Runner) workOf(id runner.ID) string {
	return filepath.Join(r.o.Work, Instance(r.root), id.String())
}

// Instance is a short name for a runner's folder, for what must be unique on the machine.
func Instance(root string) string {
	if abs, err := filepath.Abs(root); err == nil {
		root = abs
	}
	sum := sha256.Sum256([]byte(root))
	return hex.EncodeToString(sum[:4])
}

// makeWork makes the member's own working directory.
func (s *shim) makeWork() (string, error) {
	u, dir := s.l.User, s.f.path(dirWork)
	if u == nil {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		return dir, nil
	}
	dir = s.l.Work
	if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil { //nolint:gosec // passed through, and not listed
		return "", fmt.Errorf("the folder of working directories cannot be made: %w", err)
	}
	if err := os.RemoveAll(dir); err != nil { // of one with this number, before the server's folder was made anew
		return "", err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	return dir, os.Chown(dir, int(u.UID), int(u.GID))
}

// env is what a process is told of the user that it runs as.
func (u *User) env(dir string) []string {
	if u == nil {
		return nil
	}
	home, name := u.Home, u.Name
	if home == "" {
		home = dir
	}
	if name == "" {
		name = strconv.FormatUint(uint64(u.UID), 10)
	}
	return []string{"HOME=" + home, "USER=" + name, "LOGNAME=" + name}
}

// become lets a command run as the user, with no way to become another.
func (u *User) become(cmd *exec.Cmd) {
	if u == nil {
		return
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
	noNewPrivileges()
}

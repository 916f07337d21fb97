package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// look prints what a container sees of itself and its surroundings, one fact a line, in an order that does not depend on
// the runtime.
func look() {
	status()
	for _, line := range slices.Sorted(slices.Values(os.Environ())) {
		fmt.Println("env", line)
	}
	fmt.Println("args", strings.Join(os.Args[1:], " "))
	directory, _ := os.Getwd()
	fmt.Println("directory", directory)
	mask := syscall.Umask(0)
	syscall.Umask(mask)
	fmt.Printf("umask %04o\n", mask)
	limits()
	mounts()
	devices()
	for _, path := range []string{
		"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug", "/proc/scsi",
		"/sys/firmware", "/sys/devices/virtual/powercap",
	} {
		masked(path)
	}
	for _, path := range []string{"/", "/tmp", "/dev", "/dev/shm", "/proc/sys", "/sys", "/proc/sysrq-trigger", "/etc", "/data"} {
		writable(path)
	}
	for _, path := range []string{
		"/proc/sys/kernel/shm_rmid_forced", "/proc/sys/net/ipv4/ip_unprivileged_port_start", "/proc/sys/net/ipv4/ping_group_range",
		"/proc/self/oom_score_adj",
	} {
		file("value", path)
	}
	for _, name := range []string{"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"} {
		own, _ := os.Readlink("/proc/self/ns/" + name)
		first, err := os.Readlink("/proc/1/ns/" + name)
		fmt.Println("namespace", name, "is that of process 1:", err == nil && own == first)
	}
	fmt.Println("process", os.Getpid() == 1)
	name, _ := os.Hostname()
	fmt.Println("host name", name)
	for _, path := range []string{"/etc/hosts", "/etc/resolv.conf", "/etc/hostname"} {
		info, err := os.Stat(path)
		fmt.Println("file", path, err == nil && info.Mode().IsRegular())
	}
	for _, path := range os.Args[2:] {
		tree(path)
	}
}

// status prints identity and rights.
func status() {
	text, _ := os.ReadFile("/proc/self/status")
	wanted := []string{"Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if slices.Contains(wanted, name) {
			all := strings.Fields(value)
			if name == "Groups" {
				slices.Sort(all)
			}
			fmt.Println(name, strings.Join(all, " "))
		}
	}
}

func limits() {
	text, _ := os.ReadFile("/proc/self/limits")
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "Max ") {
			fmt.Println("limit", strings.Join(strings.Fields(line), " "))
		}
	}
}

// mounts prints where what kind of file system is, and how. Which device is behind it and how it is laid out are the
// runtime's own.
func mounts() {
	text, _ := os.ReadFile("/proc/self/mountinfo")
	var all []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		dash := slices.Index(fields, "-")
		if dash < 0 || len(fields) < dash+2 {
			continue
		}
		var options []string
		for _, option := range strings.Split(fields[5], ",") {
			if slices.Contains([]string{"ro", "rw", "nosuid", "nodev", "noexec"}, option) {
				options = append(options, option)
			}
		}
		slices.Sort(options)
		kind := fields[dash+1]
		if strings.HasPrefix(fields[4], "/sys/fs/cgroup/") {
			kind = "cgroup"
		}
		all = append(all, fmt.Sprintf("mount %s %s %s", fields[4], kind, strings.Join(options, ",")))
	}
	slices.Sort(all)
	for _, line := range slices.Compact(all) {
		fmt.Println(line)
	}
}

func devices() {
	entries, _ := os.ReadDir("/dev")
	for _, entry := range entries {
		path := filepath.Join("/dev", entry.Name())
		var info syscall.Stat_t
		if err := syscall.Lstat(path, &info); err != nil {
			continue
		}
		target, _ := os.Readlink(path)
		fmt.Printf("device %s %o %d %s\n", path, info.Mode, info.Rdev, target)
	}
}

// masked prints whether a path of the host's kernel can be looked at.
func masked(path string) {
	info, err := os.Stat(path)
	if err != nil {
		fmt.Println("masked", path, "is not there")
		return
	}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		fmt.Println("masked", path, err != nil || len(entries) == 0)
		return
	}
	opened, err := os.Open(path)
	if err != nil {
		fmt.Println("masked", path, "cannot be opened")
		return
	}
	defer opened.Close()
	n, _ := opened.Read(make([]byte, 1))
	fmt.Println("masked", path, n == 0)
}

func writable(path string) {
	const write = 2
	fmt.Println("writable", path, syscall.Access(path, write) == nil)
}

func file(what, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		fmt.Println(what, path, "cannot be read")
		return
	}
	fmt.Println(what, path, strings.Join(strings.Fields(string(text)), " "))
}

// tree prints owners, modes and contents below a path.
func tree(root string) {
	_ = filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			fmt.Println("tree", path, "cannot be read")
			return nil
		}
		if strings.HasPrefix(filepath.Base(path), "..") && path != root {
			if info.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		owner := info.Sys().(*syscall.Stat_t)
		fmt.Printf("tree %s %s %d:%d\n", path, info.Mode(), owner.Uid, owner.Gid)
		if info.Mode().IsRegular() && info.Size() < 1000 {
			file("content", path)
		}
		return nil
	})
}

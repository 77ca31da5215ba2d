// A file system of a few MiB, for tests of full disks.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/temporary_directory.h"

namespace hotrow {

class SmallDisk {
 public:
  explicit SmallDisk(const std::string& size)
      : mounted_(::mount("tmpfs", (directory_ / "").c_str(), "tmpfs", 0,
                         ("size=" + size).c_str()) == 0) {
    if (!mounted_) MESSAGE("skipped: this user may not mount a file system");
  }
  ~SmallDisk() {
    if (mounted_) ::umount2((directory_ / "").c_str(), MNT_DETACH);
  }
  // False: this user may not mount a file system.
  bool mounted() const { return mounted_; }
  std::string path() const { return directory_ / ""; }
  // Takes all free space.
  void fill() const {
    const int file = ::open((directory_ / "filler").c_str(), O_CREAT | O_WRONLY, 0600);
    const std::vector<char> data(1 << 16);
    while (::write(file, data.data(), data.size()) > 0) continue;
    ::close(file);
  }
  void make_room() const { ::unlink((directory_ / "filler").c_str()); }

 private:
  TemporaryDirectory directory_;
  bool mounted_;
};

}  // namespace hotrow

#include "core/disk/direct_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/anonymous_array.h"
#include "core/base/status.h"

namespace hotrow {
namespace {

Code code_of(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return Code::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return Code::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return Code::kResourceExhausted;
    case EIO:
      return Code::kDataLoss;
    default:
      return Code::kUnavailable;
  }
}

int open_unnamed(const std::string& directory, int flags) {
  const int file = ::open(directory.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC | flags, 0600);
  // The errors of a file system or kernel without support for unnamed files.
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return file;
  std::string name = directory + "/hotrow-lines-XXXXXX";
  const int named = ::mkostemp(name.data(), O_CLOEXEC | flags);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

}  // namespace

DirectFile::DirectFile(std::string directory, bool direct) : directory_(std::move(directory)) {
  open(direct);
  if (direct_ && !find_alignment()) {
    ::close(descriptor_);
    open(false);
  }
}

DirectFile::~DirectFile() { ::close(descriptor_); }

void DirectFile::open(bool direct) {
  direct_ = direct;
  alignment_ = 1;
  descriptor_ = open_unnamed(directory_, direct ? O_DIRECT : 0);
  if (descriptor_ < 0 && direct && errno == EINVAL) {
    direct_ = false;
    descriptor_ = open_unnamed(directory_, 0);
  }
  if (descriptor_ >= 0) return;
  const int error = errno;
  fail(code_of(error), "no file for rows can be made in the directory %s: %s", directory_.c_str(),
       std::strerror(error));
}

// Whether direct reads and writes work, and with what alignment.
bool DirectFile::find_alignment() {
#ifdef STATX_DIOALIGN
  struct statx facts;
  if (::statx(descriptor_, "", AT_EMPTY_PATH, STATX_DIOALIGN, &facts) == 0 &&
      (facts.stx_mask & STATX_DIOALIGN) != 0) {
    alignment_ = std::max(facts.stx_dio_offset_align, facts.stx_dio_mem_align);
    return facts.stx_dio_offset_align != 0 && alignment_ <= kPage;
  }
#endif
  const bool works = try_alignment(512) || try_alignment(kPage);
  clear();
  return works;
}

bool DirectFile::try_alignment(size_t alignment) {
  alignment_ = alignment;
  const AnonymousArray<std::byte> data(2 * kPage);
  const std::byte* unaligned = data.data() + alignment;
  const auto offset = static_cast<off_t>(alignment);
  return ::pwrite(descriptor_, unaligned, alignment, offset) == static_cast<ssize_t>(alignment);
}

void DirectFile::write(uint64_t offset, const std::byte* data, size_t bytes) {
  size_t written = 0;
  while (written < bytes) {
    const ssize_t n = ::pwrite(descriptor_, data + written, bytes - written,
                               static_cast<off_t>(offset + written));
    int error = n < 0 ? errno : 0;
    if (error == EINTR) continue;
    if (n >= 0) {
      const size_t before = written;
      written += static_cast<size_t>(n);
      // Direct writes continue at the start of a page.
      if (direct_ && written < bytes) written = written / kPage * kPage;
      if (written == before) error = ENOSPC;
    }
    if (error == 0) continue;
    fail(code_of(error),
         "%zu bytes of rows cannot be written to the disk of %s, at offset %llu of their file: "
         "%s%s",
         bytes, directory_.c_str(), static_cast<unsigned long long>(offset), std::strerror(error),
         error == ENOSPC ? free_bytes().c_str() : "");
  }
}

std::string DirectFile::free_bytes() const {
  struct statvfs facts;
  if (::fstatvfs(descriptor_, &facts) != 0) return "";
  const uint64_t bytes = uint64_t{facts.f_bavail} * facts.f_frsize;
  return " (" + std::to_string(bytes) + " bytes are free)";
}

bool DirectFile::make_hole(uint64_t offset, size_t bytes) {
  return ::fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                     static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0;
}

void DirectFile::read(uint64_t offset, std::byte* data, size_t bytes) const {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t n =
        ::pread(descriptor_, data + done, bytes - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_read(offset, bytes, -errno);
    done += static_cast<size_t>(n);
    if (n == 0 || (direct_ && done % alignment_ != 0)) {
      if (done < bytes) fail_read(offset, bytes, static_cast<int64_t>(done));
    }
  }
}

void DirectFile::clear() {
  if (::ftruncate(descriptor_, 0) == 0) return;
  const int error = errno;
  fail(code_of(error), "the file for rows in %s cannot be emptied: %s", directory_.c_str(),
       std::strerror(error));
}

void DirectFile::fail_read(uint64_t offset, size_t bytes, int64_t result) const {
  const auto at = static_cast<unsigned long long>(offset);
  if (result >= 0) {
    fail(Code::kDataLoss, "the file for rows in %s ends early: %lld of %zu bytes at offset %llu",
         directory_.c_str(), static_cast<long long>(result), bytes, at);
  }
  const int error = static_cast<int>(-result);
  fail(error == EIO ? Code::kDataLoss : Code::kUnavailable,
       "%zu bytes of rows cannot be read from the disk of %s, at offset %llu of their file: %s",
       bytes, directory_.c_str(), at, std::strerror(error));
}

ReadQueue::ReadQueue(const DirectFile& file, size_t depth, bool asynchronous)
    : file_(&file), slots_(depth), events_(depth) {
  added_.reserve(depth);
  done_.reserve(depth);
  // Reads of buffered files run at submission, so AIO gains nothing.
  if (!asynchronous || !file.direct()) return;
  if (::syscall(SYS_io_setup, depth, &context_) != 0) context_ = 0;
}

ReadQueue::~ReadQueue() {
  added_.clear();
  while (submitted_ > 0) collect(submitted_);
  if (context_ != 0) ::syscall(SYS_io_destroy, context_);
}

void ReadQueue::add(size_t slot, uint64_t offset, std::byte* data, size_t bytes) {
  iocb& request = slots_[slot];
  request = iocb{};
  request.aio_data = slot;
  request.aio_fildes = static_cast<uint32_t>(file_->descriptor());
  request.aio_lio_opcode = IOCB_CMD_PREAD;
  request.aio_buf = reinterpret_cast<uintptr_t>(data);
  request.aio_nbytes = bytes;
  request.aio_offset = static_cast<int64_t>(offset);
  added_.push_back(&request);
  ++pending_;
}

void ReadQueue::submit() {
  size_t next = 0;
  while (next < added_.size()) {
    long taken = -1;
    if (context_ != 0) {
      taken = ::syscall(SYS_io_submit, context_, added_.size() - next, added_.data() + next);
      if (taken < 0 && errno == EINTR) continue;
    }
    if (taken > 0) {
      submitted_ += static_cast<size_t>(taken);
      next += static_cast<size_t>(taken);
      continue;
    }
    // No AIO, or the kernel has no room for this one.
    const iocb& request = *added_[next++];
    auto* data = reinterpret_cast<std::byte*>(static_cast<uintptr_t>(request.aio_buf));
    ssize_t n;
    do {
      n = ::pread(file_->descriptor(), data, request.aio_nbytes, request.aio_offset);
    } while (n < 0 && errno == EINTR);
    done_.push_back({static_cast<size_t>(request.aio_data), n < 0 ? -errno : n});
  }
  added_.clear();
}

void ReadQueue::collect(size_t at_least) {
  const long count =
      ::syscall(SYS_io_getevents, context_, at_least, submitted_, events_.data(), nullptr);
  for (long i = 0; i < count; ++i) {
    const io_event& event = events_[static_cast<size_t>(i)];
    done_.push_back({static_cast<size_t>(event.data), event.res});
  }
  if (count > 0) submitted_ -= static_cast<size_t>(count);
}

const std::vector<ReadQueue::Done>& ReadQueue::wait(size_t at_least) {
  done_.clear();
  submit();
  at_least = std::min(at_least, pending_);
  if (submitted_ > 0 && done_.size() < at_least) {
    do collect(at_least - done_.size());
    while (done_.size() < at_least && submitted_ > 0);
  }
  pending_ -= done_.size();
  return done_;
}

}  // namespace hotrow

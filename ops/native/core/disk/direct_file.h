// Scratch space on a disk that bypasses the page cache: an unnamed file, and many reads in flight.
#pragma once

#include <linux/aio_abi.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hotrow {

// The file vanishes when it is closed, also by a crash. Safe from several threads.
class DirectFile {
 public:
  // Multiples of this are always valid offsets, sizes and addresses.
  static constexpr size_t kPage = 4096;

  // directory: where the file is created. direct: bypasses the page cache (O_DIRECT) if the file
  // system supports it. Fails with NotFound, PermissionDenied, ResourceExhausted or Unavailable.
  explicit DirectFile(std::string directory, bool direct = true);
  ~DirectFile();
  DirectFile(const DirectFile&) = delete;

  bool direct() const { return direct_; }
  // Offsets, sizes and addresses must be multiples of this; at most kPage.
  size_t alignment() const { return alignment_; }
  int descriptor() const { return descriptor_; }

  // data: (bytes). Fails with ResourceExhausted when the disk is full, DataLoss after an error of
  // the medium, Unavailable after any other.
  void write(uint64_t offset, const std::byte* data, size_t bytes);
  // data: (bytes) out. A read that ends early is DataLoss.
  void read(uint64_t offset, std::byte* data, size_t bytes) const;
  // Gives the disk the blocks of this range, which then reads as zeros. False: the file system
  // cannot.
  bool make_hole(uint64_t offset, size_t bytes);
  // Makes the file empty.
  void clear();
  // Throws the error of a read that returned `result` (bytes, or an errno below 0) instead of
  // `bytes`.
  [[noreturn]] void fail_read(uint64_t offset, size_t bytes, int64_t result) const;

 private:
  void open(bool direct);
  bool find_alignment();
  bool try_alignment(size_t alignment);
  std::string free_bytes() const;

  std::string directory_;
  int descriptor_ = -1;
  bool direct_ = false;
  size_t alignment_ = 1;
};

// One thread's reads of a file, many in flight at once. It uses Linux AIO through system calls:
// glibc's AIO uses threads, and containers forbid io_uring. Without AIO in the kernel, reads run
// one after the other.
class ReadQueue {
 public:
  // depth: reads at most in flight. asynchronous: false never uses AIO.
  ReadQueue(const DirectFile& file, size_t depth, bool asynchronous);
  ~ReadQueue();  // waits for the reads in flight
  ReadQueue(const ReadQueue&) = delete;

  struct Done {
    size_t slot;
    int64_t result;  // bytes read, or an errno below 0
  };
  // Adds a read in a slot, a number below depth without a read; it starts with the next `wait`.
  // data: (bytes) out. All arguments are multiples of the file's alignment.
  void add(size_t slot, uint64_t offset, std::byte* data, size_t bytes);
  // Waits until `at_least` of the reads are done, or all of them. Returns the finished reads; the
  // list is valid until the next call.
  const std::vector<Done>& wait(size_t at_least);
  // Reads that were added and not yet returned by `wait`.
  size_t pending() const { return pending_; }

 private:
  void submit();
  void collect(size_t at_least);

  const DirectFile* file_;
  aio_context_t context_ = 0;  // 0: no AIO
  size_t pending_ = 0;
  size_t submitted_ = 0;  // reads submitted to the kernel
  std::vector<iocb> slots_;
  std::vector<iocb*> added_;
  std::vector<io_event> events_;
  std::vector<Done> done_;
};

}  // namespace hotrow

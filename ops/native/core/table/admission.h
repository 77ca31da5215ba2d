// Decides which keys get a row: a key is admitted after enough occurrences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace hotrow {

enum class AdmissionKind : int {
  kAlways = 0,
  kCounter = 1,  // an exact count a key that is not admitted yet
  kFilter = 2,   // counting Bloom filter of fixed size: may admit early, never late
};

struct AdmissionOptions {
  AdmissionKind kind = AdmissionKind::kAlways;
  uint32_t occurrences = 1;    // a key is admitted with its n-th occurrence
  uint64_t expected_keys = 0;  // kFilter: keys that wait at a time
  double error_rate = 0.01;    // kFilter: probability that a new key is admitted early
};

// Of one partition of a table. Not synchronized.
class AdmissionFilter {
 public:
  virtual ~AdmissionFilter() = default;
  // Counts `times` occurrences of a key without a row. True: the key is admitted now, and kCounter
  // drops its count. 0 occurrences change nothing and admit no key.
  virtual bool count_occurrences(int64_t key, uint32_t times) = 0;
  // Keys whose occurrences are counted: exact (kCounter) or estimated (kFilter).
  virtual uint64_t waiting() const = 0;
  // `undo` takes back what was counted since `begin`, unless `keep` was called. Neither of them
  // fails. count_occurrences may fail with std::bad_alloc or ResourceExhausted, and then has
  // changed nothing.
  virtual void begin_changes() = 0;
  virtual void keep_changes() noexcept = 0;
  virtual void undo_changes() noexcept = 0;
  virtual size_t bytes() const = 0;
  // The state as bytes, the same for the same history. `restore` fails with DataLoss when the bytes
  // are damaged, and with FailedPrecondition when they belong to other options.
  virtual std::vector<uint8_t> save() const = 0;
  virtual void restore(const uint8_t* data, size_t size) = 0;
  virtual void clear() = 0;
};

// partitions: how many filters share the options' expected_keys. Null for kAlways.
std::unique_ptr<AdmissionFilter> make_admission_filter(const AdmissionOptions& options,
                                                       size_t partitions);

}  // namespace hotrow

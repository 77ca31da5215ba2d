// The steps of a call on tables on a GPU, shared by the features of a layer (gpu/step/layer.cu) and
// a commit (gpu/step/commit.cu): it finds the rows of keys, in the host tier if they have no slot,
// and applies gradients to them. T tables, N keys, U distinct ones, M of them missing.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/executor.h"
#include "core/gpu/kernels/keys.h"
#include "core/gpu/kernels/pooling.h"
#include "core/gpu/kernels/runtime.h"
#include "core/gpu/kernels/update.h"
#include "core/gpu/step/tier.h"
#include "core/gpu/step/workspace.h"
#include "core/table/find.h"
#include "core/table/table_locks.h"

namespace hotrow {

// Gradients of the distinct keys of a batch.
struct DeviceDue {
  DeviceGradients gradients;
  const uint32_t* counts = nullptr;           // (U) lookups, on the device
  std::vector<std::optional<float>> factors;  // (T) of the gradients; none: the table has no step
  const float* learning_rates = nullptr;      // (T), or null: those of the options
  float global_clip_norm = 0.0f;              // 0: none
};

// The tiers of tables. Fails unless all tables have their tiers on one GPU.
std::vector<GpuTier*> tiers_on_one_gpu(const std::vector<Table*>& tables);

// Whether an update of one of the tables needs values of other ranks.
bool any_measures_together(const std::vector<Table*>& tables);

// What a call does when it has its tables' locks.
enum class DeviceWork : int {
  kEnqueue = 0,  // it puts work on its stream
  kWait = 1,     // and waits for some of it
  kLookUp = 2,   // for keys without a slot
};

class DeviceCall {
 public:
  // Takes the tables' locks. A call that will wait first waits, without them, until the device has
  // done what is on the stream and what others do with the slots: its own work alone is then waited
  // for in the locks. idle: the end of all that, if own work is on the stream already. Fails as
  // tiers_on_one_gpu.
  DeviceCall(const std::vector<Table*>& tables, const Executor& executor, DeviceStream stream,
             DeviceWork work, const std::optional<DeviceIdle>& idle = {});
  // Even if the call failed, later calls wait for the work that it put on the stream.
  ~DeviceCall();
  DeviceCall(const DeviceCall&) = delete;

  DeviceWorkspace& work() const { return *work_; }
  DeviceStream stream() const { return stream_; }
  const std::vector<Table*>& tables() const { return tables_; }
  const std::vector<GpuTier*>& tiers() const { return tiers_; }

  // A lookup of distinct keys.
  struct Lookup {
    Find how;
    const DeviceCache* caches;                     // (T) on the device
    const WrongKeys* wrong = nullptr;              // on the device, or null
    std::function<void(const WrongKeys&)> refuse;  // throws; if `wrong` reports an error
    // Puts work on the stream that is right if the condition holds: no key is missing. Or null.
    std::function<void(const DeviceIf&)> ahead;
  };
  // Finds the rows of batch->unique, whose lookups are batch->counts(). batch->lookups: (T) lookups
  // of all keys, unless they are `counted`; afterwards, of the keys that have a row. Returns how
  // many distinct keys have no row.
  size_t find(const Lookup& lookup, DeviceBatch* batch);
  // Applies the optimizers.
  void apply(const DeviceBatch& batch, const DeviceDue& due);
  // Sends rows of the bypass back to the host tier, and removes expired rows.
  void end_update(const DeviceBatch& batch, const DeviceDue& due);

  // Where the small arrays that describe an update are added, of `features`, or shares of a commit.
  // Once a call.
  DeviceDescribed* describe(size_t features);
  DeviceDescribed* described() { return &described_; }
  // Terms that send_described writes, of pieces that were added.
  void expect_terms(const DevicePieces& pieces, const DeviceTerms& terms) {
    term_pieces_ = pieces;
    terms_ = terms;
  }
  // Puts what was added on the stream, and then the terms. `apply` does it, too.
  void send_described();
  // Scratch memory for one kernel.
  void* scratch(size_t bytes) {
    work_->scratch.reserve(bytes);
    return work_->scratch.data();
  }
  // Copies `count` values to the host's memory, and waits for them.
  template <typename T>
  void read(T* to, const T* from, size_t count) {
    copy_async(to, from, count, stream_);
    work_->ready.record(stream_);
    work_->ready.wait();
  }

 private:
  using Answer = DeviceAnswer;
  struct InsertAnswer;
  struct Incoming;

  // Once the rows in slots were found.
  // pinned: the batches that have their pins afterwards, also if it fails.
  size_t find_missing(const Lookup& lookup, DeviceBatch* batch, DeviceIf* pinned);
  // places: (M) in the host tier, kNoSlot: no row.
  void find_in_host(const Answer& answer, Find how, uint32_t* places);
  // Return how many keys have no row; counts: (T).
  size_t bring_in(const Answer& answer, Find how, DeviceBatch* batch);
  size_t bring_in_missing(const Answer& answer, Find how, CacheCounts* counts, DeviceBatch* batch);
  Incoming make_room(const Answer& answer, Find how, DeviceBatch* batch);
  size_t count_absent(const Answer& answer, const Incoming& in, CacheCounts* counts,
                      DeviceBatch* batch) const;
  void choose_slots(const Incoming& in, DeviceBatch* batch);
  void note_inserted(const Answer& answer, const Incoming& in, CacheCounts* counts,
                     DeviceBatch* batch);
  void move_rows(const Incoming& in, const DeviceBatch& batch, const uint32_t* victim_places);
  std::vector<DeviceHostRows> host_rows() const;
  // Whether any of the tables is.
  bool watching() const;
  // As GpuTier::change_slots, of all tables.
  template <typename Change>
  void change_slots(Change&& change);
  // Fails only if the rows are lost.
  void unpin(const Lookup& lookup, const DeviceBatch& batch, const DeviceIf& condition);
  // Sums the gradients before they are applied.
  void sum(const DeviceBatch& batch, const DeviceDue& due, std::vector<DeviceStep>* steps);
  // Scales the sums down if their norm is too large.
  void clip(const DeviceBatch& batch, const DeviceDue& due, std::vector<DeviceStep>* steps);
  // Sums the squares of rows whose columns other ranks have, too.
  void measure_together(const DeviceBatch& batch, const DeviceDue& due,
                        std::vector<DeviceStep>* steps);
  void send_bypass_back(const DeviceBatch& batch);
  void expire(size_t table);

  const std::vector<Table*> tables_;
  const Executor executor_;
  const DeviceStream stream_;
  std::optional<TableLocks> locks_;
  std::vector<GpuTier*> tiers_;
  std::optional<OnDevice> on_device_;
  std::vector<DeviceCache> caches_;
  DeviceWorkspace* work_;
  std::shared_ptr<DeviceEvent> use_;
  DeviceDescribed described_;
  DevicePieces term_pieces_;
  DeviceTerms terms_;
};

}  // namespace hotrow

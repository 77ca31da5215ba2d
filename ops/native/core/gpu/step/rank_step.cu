#include <limits>

#include "core/gpu/comm/ranks.h"
#include "core/gpu/step/call.h"
#include "core/gpu/step/rank_exchange.h"
#include "core/gpu/step/rank_step.h"
#include "core/ranks/prefetched_batch.h"

namespace hotrow {
namespace {

// A call has the memory of its layer alone, and later calls come after what it put on its stream.
class RankCallOnDevice {
 public:
  RankCallOnDevice(const LayerCall& call, DeviceStream stream)
      : ranks_(*call.tables[0]->sharding().ranks),
        tier_(*tiers_on_one_gpu(call.tables)[0]),
        here_(tier_.device()),
        on_gpu_(device_communicator_of(ranks_, tier_.device())),
        stream_(stream),
        lock_(tier_.rank_work->mutex) {
    work().used.hold(stream);
  }
  ~RankCallOnDevice() {
    work().note_bytes();
    try {
      work().used.record(stream_);
    } catch (const Error&) {
    }
  }
  DeviceRankWork& work() const { return *tier_.rank_work; }
  DeviceCommunicator& on_gpu() const { return on_gpu_; }

  // The pass of a ticket; with ticket 0 one that nobody waits for, else the oldest.
  DeviceRankPass* pass_of(int64_t ticket) const {
    auto& waiting = work().waiting;
    DeviceRankPass* oldest = nullptr;
    for (auto& pass : waiting) {
      if (pass->ticket == ticket) return pass.get();
      if (oldest == nullptr || pass->ticket < oldest->ticket) oldest = pass.get();
    }
    if (ticket != 0) return nullptr;
    if (waiting.size() >= Table::kFoundBatches) return oldest;
    waiting.push_back(std::make_unique<DeviceRankPass>());
    return waiting.back().get();
  }

 private:
  Collectives& ranks_;
  GpuTier& tier_;
  const OnDevice here_;
  DeviceCommunicator& on_gpu_;
  const DeviceStream stream_;
  const std::lock_guard<std::mutex> lock_;
};

}  // namespace

int64_t device_rank_forward(const LayerCall& call, bool insert, const std::vector<float*>& pooled,
                            size_t* missing, DeviceStream stream) {
  Table& first = *call.tables[0];
  int64_t ticket = 0;
  // Outlives what fails: it may wait for others, which must know of the failure first.
  std::unique_ptr<PrefetchedBatch> prefetched;
  for_all_ranks(*first.sharding().ranks, [&] {
    if (insert) prefetched = next_prefetched(first);
    // Owners have received its keys, and their rows arrive.
    if (prefetched != nullptr) prefetched->wait();
    const RankCallOnDevice here(call, stream);
    DeviceRankPass* const pass = here.pass_of(0);
    pass->ticket = 0;  // nobody's, if this fails
    DeviceRankExchange step(call, here.on_gpu(), &here.work(), pass, stream);
    step.collect();
    step.send_keys(insert);
    step.look_up(insert, missing);
    if (insert) send_keys_of_next(first);
    step.pool(pooled);
    if (insert) ticket = pass->ticket = next_ticket();
  });
  return ticket;
}

void device_rank_backward(const LayerCall& call, const std::vector<const float*>& gradients,
                          const BackwardOptions& options, DeviceStream stream) {
  for_all_ranks(*call.tables[0]->sharding().ranks, [&] {
    const RankCallOnDevice here(call, stream);
    DeviceRankPass* pass = options.ticket == 0 ? nullptr : here.pass_of(options.ticket);
    const bool again =
        pass == nullptr || pass->tables != call.tables || !(pass->keys == KeyPlaces::of(call));
    if (again) pass = here.pass_of(0);
    pass->ticket = 0;
    DeviceRankExchange step(call, here.on_gpu(), &here.work(), pass, stream);
    if (again) {
      step.collect();
      step.send_keys(true);
    }
    step.backward(gradients, options);
  });
}

}  // namespace hotrow

#include <algorithm>
#include <optional>

#include "core/gpu/comm/ranks.h"
#include "core/gpu/step/call.h"
#include "core/gpu/step/rank_exchange.h"
#include "core/gpu/step/rank_step.h"
#include "core/ranks/step_on_ranks.h"

namespace hotrow {
namespace {

// The Step of ranks/step_on_ranks.h for rows on GPUs. It uses its layer's memory exclusively, and
// later calls wait for its work on the stream.
class StepOnDevice {
 public:
  StepOnDevice(const LayerCall& call, PrefetchedBatch* prefetched, DeviceStream stream)
      : StepOnDevice(call, stream) {
    use(&free_pass());
    if (prefetched == nullptr) return;
    if (!prefetched->has_shape_of(call)) prefetched->refuse(call);
    const HeldPass keys = prefetched->wait();
    exchange_->take_prefetched(*prefetched, *keys.get());
    dispatched_ = true;
  }
  StepOnDevice(const LayerCall& call, int64_t ticket, DeviceStream stream)
      : StepOnDevice(call, stream) {
    DeviceRankPass* const found = find_pass(ticket);
    dispatched_ = found != nullptr;
    use(dispatched_ ? found : &free_pass());
  }
  ~StepOnDevice() {
    work().note_bytes();
    work().used.record_or_wait(stream_);
  }

  bool dispatched() const { return dispatched_; }
  void dispatch(bool insert) {
    exchange_->collect();
    exchange_->send_keys(insert);
  }
  void dispatch_again() { dispatch(true); }
  void look_up(bool insert, size_t* missing) { exchange_->look_up(insert, missing); }
  void pool(const std::vector<float*>& pooled) { exchange_->pool(pooled); }
  void backward(const std::vector<const float*>& gradients, const BackwardOptions& options) {
    exchange_->backward(gradients, options);
  }
  void leave_to(int64_t ticket) { pass_->ticket = ticket; }

 private:
  StepOnDevice(const LayerCall& call, DeviceStream stream)
      : call_(call),
        ranks_(*call.tables[0]->sharding().ranks),
        tier_(*tiers_on_one_gpu(call.tables)[0]),
        here_(tier_.device()),
        on_gpu_(device_communicator_of(ranks_, tier_.device())),
        stream_(stream),
        lock_(tier_.rank_work->mutex) {
    work().used.hold(stream);
  }

  DeviceRankWork& work() const { return *tier_.rank_work; }
  void use(DeviceRankPass* pass) {
    pass_ = pass;
    pass_->ticket = 0;  // no pass's, if this fails
    exchange_.emplace(call_, on_gpu_, &work(), pass_, stream_);
  }
  // The pass of a forward pass with these keys, or null.
  DeviceRankPass* find_pass(int64_t ticket) const {
    if (ticket == 0) return nullptr;
    for (auto& pass : work().waiting) {
      if (pass->ticket != ticket) continue;
      const bool same = pass->tables == call_.tables && pass->places == KeyPlaces::of(call_);
      return same ? pass.get() : nullptr;
    }
    return nullptr;
  }
  // A pass that no backward pass waits for, else the oldest.
  DeviceRankPass& free_pass() const {
    auto& waiting = work().waiting;
    const auto oldest =
        std::min_element(waiting.begin(), waiting.end(),
                         [](const auto& a, const auto& b) { return a->ticket < b->ticket; });
    if (oldest != waiting.end() &&
        ((*oldest)->ticket == 0 || waiting.size() >= Table::kFoundBatches)) {
      return **oldest;
    }
    waiting.push_back(std::make_unique<DeviceRankPass>());
    return *waiting.back();
  }

  const LayerCall& call_;
  Collectives& ranks_;
  GpuTier& tier_;
  const OnDevice here_;
  DeviceCommunicator& on_gpu_;
  const DeviceStream stream_;
  const std::lock_guard<std::mutex> lock_;
  bool dispatched_ = false;
  DeviceRankPass* pass_ = nullptr;
  std::optional<DeviceRankExchange> exchange_;
};

}  // namespace

int64_t device_rank_forward(const LayerCall& call, bool insert, const std::vector<float*>& pooled,
                            size_t* missing, DeviceStream stream) {
  return forward_on_ranks<StepOnDevice>(call, insert, pooled, missing, stream);
}

void device_rank_backward(const LayerCall& call, const std::vector<const float*>& gradients,
                          const BackwardOptions& options, DeviceStream stream) {
  backward_on_ranks<StepOnDevice>(call, gradients, options, stream);
}

}  // namespace hotrow

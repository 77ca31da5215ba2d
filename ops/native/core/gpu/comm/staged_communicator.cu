#include <numeric>

#include "core/gpu/comm/staged_communicator.h"
#include "core/gpu/kernels/runtime.h"

namespace hotrow {
namespace {

size_t sum_of(const std::vector<size_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), size_t{0});
}

class StagedCommunicator final : public DeviceCommunicator {
 public:
  StagedCommunicator(Communicator& host, int device) : DeviceCommunicator(host, device) {}

 private:
  void run(const Exchange& exchange, DeviceStream own) override {
    const size_t me = static_cast<size_t>(rank());
    // A rank's data for itself stay on the device.
    std::vector<size_t> sent = exchange.send_bytes, received = exchange.receive_bytes;
    sent[me] = received[me] = 0;
    const std::byte* const from = exchange.send + exchange.send_begin[me];
    std::byte* const to = exchange.receive + exchange.receive_begin[me];
    if (from != to) copy_async(to, from, exchange.receive_bytes[me], own);
    out_.reserve(sum_of(sent));
    std::byte* at = out_.data();
    for (size_t r = 0; r < sent.size(); ++r) {
      copy_async(at, exchange.send + exchange.send_begin[r], sent[r], own);
      at += sent[r];
    }
    wait(own);
    // The previous exchange's copies out of it are done, too.
    in_.reserve(sum_of(received));
    host().all_to_all(out_.data(), sent.data(), in_.data(), received.data());
    const std::byte* next = in_.data();
    for (size_t r = 0; r < received.size(); ++r) {
      copy_async(exchange.receive + exchange.receive_begin[r], next, received[r], own);
      next += received[r];
    }
  }

  void wait(DeviceStream own) override {
    check(cudaStreamSynchronize(own), "wait for copies of an exchange");
  }

  void hold(DeviceStream) override {}  // what was sent has been read when the exchange is done

  PinnedBlock out_, in_;
};

}  // namespace

std::unique_ptr<DeviceCommunicator> staged_communicator(Communicator& host, int device) {
  const OnDevice here(device);
  return std::make_unique<StagedCommunicator>(host, device);
}

}  // namespace hotrow

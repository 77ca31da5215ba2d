#include <algorithm>
#include <numeric>

#include "core/comm/rank_sums.h"
#include "core/gpu/comm/communicator.h"
#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/runtime.h"

namespace hotrow {
namespace {

// sums[i] = parts[0 * count + i] + parts[1 * count + i] + ..., left to right.
__global__ void sum_ranks(const float* parts, size_t count, int ranks, float* sums) {
  for (size_t i = thread_index(); i < count; i += thread_stride()) {
    float sum = parts[i];
    for (int r = 1; r < ranks; ++r) sum = sum + parts[static_cast<size_t>(r) * count + i];
    sums[i] = sum;
  }
}

std::vector<size_t> starts(const std::vector<size_t>& sizes) {
  std::vector<size_t> begin(sizes.size(), 0);
  std::partial_sum(sizes.begin(), sizes.end() - 1, begin.begin() + 1);
  return begin;
}

std::vector<size_t> in_bytes(const std::vector<size_t>& counts) {
  std::vector<size_t> bytes;
  for (const size_t count : counts) bytes.push_back(count * sizeof(float));
  return bytes;
}

template <typename Value>
auto* bytes_of(Value* values) {
  using Byte = std::conditional_t<std::is_const_v<Value>, const std::byte, std::byte>;
  return reinterpret_cast<Byte*>(values);
}

}  // namespace

struct DeviceCommunicator::Memory {
  OwnStream own;
  DeviceEvent asked, done;
  DeviceBlock parts;
};

DeviceCommunicator::DeviceCommunicator(Communicator& host, int device)
    : host_(host), device_(device) {
  const OnDevice here(device_);
  memory_ = std::make_unique<Memory>();
}

DeviceCommunicator::~DeviceCommunicator() = default;

void DeviceCommunicator::begin(const std::string& what) {
  host_.begin(what);
  what_ = what;
}

void DeviceCommunicator::start(Exchange& exchange, DeviceStream stream) {
  const OnDevice here(device_);
  exchange.receive_begin = starts(exchange.receive_bytes);
  memory_->asked.record(stream);
  memory_->asked.hold(memory_->own.get());
  run(exchange, memory_->own.get());
  memory_->done.record(memory_->own.get());
  memory_->done.hold(stream);
  hold(stream);
}

void DeviceCommunicator::all_to_all(const std::byte* send, const size_t* send_bytes,
                                    std::byte* receive, const size_t* receive_bytes,
                                    DeviceStream stream) {
  Exchange exchange;
  exchange.send = send;
  exchange.send_bytes.assign(send_bytes, send_bytes + size());
  exchange.send_begin = starts(exchange.send_bytes);
  exchange.receive = receive;
  exchange.receive_bytes.assign(receive_bytes, receive_bytes + size());
  start(exchange, stream);
}

void DeviceCommunicator::all_gather(const std::byte* send, std::byte* receive, const size_t* bytes,
                                    DeviceStream stream) {
  const size_t n = static_cast<size_t>(size());
  Exchange exchange;
  exchange.send = send;
  exchange.send_bytes.assign(n, bytes[rank()]);
  exchange.send_begin.assign(n, 0);
  exchange.receive = receive;
  exchange.receive_bytes.assign(bytes, bytes + n);
  start(exchange, stream);
}

void DeviceCommunicator::sum(const float* send, float* receive, const std::vector<size_t>& counts,
                             DeviceStream stream) {
  const size_t n = counts.size(), mine = counts[static_cast<size_t>(rank())];
  Exchange exchange;
  {
    const OnDevice here(device_);
    memory_->parts.reserve(n * mine * sizeof(float));
  }
  exchange.send = bytes_of(send);
  exchange.send_bytes = in_bytes(counts);
  exchange.send_begin = starts(exchange.send_bytes);
  exchange.receive = memory_->parts.data();
  exchange.receive_bytes.assign(n, mine * sizeof(float));
  start(exchange, stream);
  if (mine == 0) return;
  const OnDevice here(device_);
  launch("sums over ranks", sum_ranks, blocks_for(mine), kBlockThreads, stream,
         reinterpret_cast<const float*>(memory_->parts.data()), mine, size(), receive);
  // The next exchange may overwrite the parts, so it waits for these sums.
  memory_->asked.record(stream);
  memory_->asked.hold(memory_->own.get());
}

void DeviceCommunicator::reduce_scatter(const float* send, float* receive, const size_t* counts,
                                        DeviceStream stream) {
  sum(send, receive, std::vector<size_t>(counts, counts + size()), stream);
}

void DeviceCommunicator::all_reduce(float* values, size_t count, DeviceStream stream) {
  std::vector<size_t> counts;
  for (int r = 0; r < size(); ++r) {
    counts.push_back(slice_begin(count, size(), r + 1) - slice_begin(count, size(), r));
  }
  // The sums overwrite this rank's slice of the values: it was sent to the other ranks before.
  float* own = values + slice_begin(count, size(), rank());
  sum(values, own, counts, stream);
  all_gather(bytes_of(own), bytes_of(values), in_bytes(counts).data(), stream);
}

void DeviceCommunicator::broadcast(std::byte* data, size_t bytes, int root, DeviceStream stream) {
  const size_t n = static_cast<size_t>(size());
  Exchange exchange;
  exchange.send = exchange.receive = data;
  exchange.send_begin.assign(n, 0);
  exchange.send_bytes.assign(n, rank() == root ? bytes : 0);
  exchange.send_bytes[static_cast<size_t>(root)] = 0;
  exchange.receive_bytes.assign(n, 0);
  if (rank() != root) exchange.receive_bytes[static_cast<size_t>(root)] = bytes;
  start(exchange, stream);
}

void DeviceCommunicator::finish() {
  const OnDevice here(device_);
  wait(memory_->own.get());
}

namespace {

// What a rank announces for an exchange; the other ranks read its memory.
struct Offer {
  const std::byte* send;
  const DeviceEvent* ready;
  const DeviceEvent* done;
};

class ThreadDeviceCommunicator final : public DeviceCommunicator {
 public:
  ThreadDeviceCommunicator(Communicator& host, int device)
      : DeviceCommunicator(host, device), offers_(static_cast<size_t>(host.size())) {}

 private:
  void run(const Exchange& exchange, DeviceStream own) override {
    const size_t n = static_cast<size_t>(size()), me = static_cast<size_t>(rank());
    // This rank's own events, since other ranks wait for them, too.
    ready_.record(own);
    const Offer mine = {exchange.send, &ready_, &done_};
    std::vector<size_t> bytes(n, sizeof(Offer));
    host().all_gather(reinterpret_cast<const std::byte*>(&mine),
                      reinterpret_cast<std::byte*>(offers_.data()), bytes.data());
    std::vector<size_t> begins(n * n);
    std::fill(bytes.begin(), bytes.end(), n * sizeof(size_t));
    host().all_gather(reinterpret_cast<const std::byte*>(exchange.send_begin.data()),
                      reinterpret_cast<std::byte*>(begins.data()), bytes.data());
    for (size_t r = 0; r < n; ++r) {
      const std::byte* from = offers_[r].send + begins[r * n + me];
      std::byte* to = exchange.receive + exchange.receive_begin[r];
      if (exchange.receive_bytes[r] == 0 || from == to) continue;
      offers_[r].ready->hold(own);
      copy_async(to, from, exchange.receive_bytes[r], own);
    }
    done_.record(own);
    // Now all ranks have enqueued their copies, and done_ of each follows its copies.
    host().barrier();
  }

  void hold(DeviceStream stream) override {
    for (const Offer& offer : offers_) offer.done->hold(stream);
    // No rank records its events again, or ends, before all ranks have enqueued their waits.
    host().barrier();
  }

  void wait(DeviceStream own) override {
    check(cudaStreamSynchronize(own), "wait for collectives on the device");
  }

  DeviceEvent ready_, done_;
  std::vector<Offer> offers_;
};

}  // namespace

std::unique_ptr<DeviceCommunicator> thread_device_communicator(Communicator& host, int device) {
  const OnDevice here(device);
  return std::make_unique<ThreadDeviceCommunicator>(host, device);
}

}  // namespace hotrow

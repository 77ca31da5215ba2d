// The distinct keys of a layer's call, found before the call takes its tables' locks. So no lock is
// held while the device does what else is on the caller's stream, and prefetching goes on.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "core/gpu/kernels/pooling.h"
#include "core/gpu/kernels/runtime.h"
#include "core/gpu/step/call_keys.h"
#include "core/gpu/step/workspace.h"

namespace hotrow {

// Writes keys->unique. in.tables may be tables + 1: the keys of the last belong to no table.
void make_distinct(const DeviceKeys& in, size_t tables, DeviceBatchKeys* keys, DeviceBlock* scratch,
                   DeviceStream stream);

// The features of a call for kernels, without what is pooled. keys: of its keys.
std::vector<DeviceFeature> features_of(const LayerCall& call, const KeyPlaces& keys);

// What describes a lookup, on the device: all that a forward pass describes.
struct DeviceLookupKeys {
  CallKeys keys;
  const DeviceCache* caches = nullptr;  // (T)
  DevicePieces pool;                    // of what is pooled; without it, nothing
};
// Collects the keys of a call into `described`, and writes all of `keys`. pooled: (F), or null.
DeviceLookupKeys find_distinct(const LayerCall& call, const std::vector<float*>* pooled,
                               DeviceBatchKeys* keys, DeviceBlock* described, DeviceBlock* scratch,
                               DeviceStream stream);

// Memory for the calls of a layer, in its first table's tier.
class DeviceKeysPool {
 public:
  size_t bytes() const;

 private:
  friend class DeviceKeysAhead;
  struct Room {
    DeviceBatchKeys keys;
    DeviceBlock described, scratch;
    DeviceEvent used;  // by the last call
    DeviceEvent idle;  // before the keys

    size_t bytes() const;
  };
  std::unique_ptr<Room> take();
  void give_back(std::unique_ptr<Room> room);

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Room>> free_;
};

// A point on a stream that comes after its earlier work and after all earlier users of the slots
// of a call's tables.
struct DeviceIdle {
  DeviceEvent* event;
  uint64_t uses;  // of the slots, before
};

class DeviceKeysAhead {
 public:
  // Puts the work on the stream; does not wait. Fails as tiers_on_one_gpu and find_distinct.
  DeviceKeysAhead(const LayerCall& call, const std::vector<float*>* pooled, DeviceStream stream);
  ~DeviceKeysAhead();
  DeviceKeysAhead(const DeviceKeysAhead&) = delete;

  // The point before the keys. Who waits for it, and then works behind the keys, leaves the device
  // no gap.
  DeviceIdle idle() const { return {&room_->idle, uses_}; }
  // Gives the keys to a batch, once, in exchange for the memory of its own. What is returned lives
  // as long as this.
  DeviceLookupKeys give_to(DeviceBatchKeys* batch);

 private:
  DeviceKeysPool* pool_;
  const OnDevice here_;
  const DeviceStream stream_;
  std::unique_ptr<DeviceKeysPool::Room> room_;
  uint64_t uses_ = 0;
  DeviceLookupKeys collected_;
};

}  // namespace hotrow

// Rows outside the slots on their way to the host tier, on a stream of their own: the next step
// begins meanwhile. Of the tables of a layer.
//
// The next lookup of the layer that brings rows in takes those that it wants from here. So its rows
// come in while these go out. All other work that reads or writes rows of the host tier comes after
// them (hold_host_rows of gpu/step/tier.h).
#pragma once

#include <memory>
#include <vector>

#include "core/gpu/kernels/lines.h"
#include "core/gpu/kernels/runtime.h"

namespace hotrow {

class GpuTier;

class RowsInTransit {
 public:
  // Makes room for the index of `rows` rows.
  void reserve(size_t rows, size_t tables);
  // Writes rows (DeviceOutgoing without pointers) of the tiers' tables back once the stream has
  // done what is on it. Takes their memory in exchange for that of the rows before. first: (T + 1);
  // host_rows: (T). In the tables' locks, alone.
  void send(const std::vector<GpuTier*>& tiers, const std::vector<DeviceHostRows>& host_rows,
            const std::vector<uint32_t>& first, const DeviceOutgoing& rows, DeviceBlock* memory,
            DeviceStream stream);
  // Whether these are the tiers' newest rows: no other work on the device changed rows of the host
  // tier since, and no row of these was evicted.
  bool newest(const std::vector<GpuTier*>& tiers) const;
  // For the next work on the stream, which brings rows of the tiers' tables in: those that it must
  // take from here, if it may come before they are in the host tier. Else it comes after, and there
  // are none. changes: the work also writes rows back.
  DeviceTransit use(const std::vector<GpuTier*>& tiers, bool changes, DeviceStream stream);
  // Where they go out.
  DeviceStream stream() const { return stream_.get(); }
  size_t bytes() const { return memory_.bytes() + index_memory_.bytes(); }

 private:
  DeviceTransit rows_;
  bool usable_ = false;  // see newest
  std::vector<GpuTier*> tiers_;
  DeviceBlock memory_, index_memory_;
  OwnStream stream_;
  DeviceEvent updated_;
  std::shared_ptr<DeviceEvent> gone_ = std::make_shared<DeviceEvent>();
  DeviceBlock scratch_;
};

}  // namespace hotrow

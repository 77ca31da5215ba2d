#include <algorithm>
#include <utility>

#include "core/gpu/step/tier.h"
#include "core/gpu/step/transit.h"

namespace hotrow {

void RowsInTransit::reserve(size_t rows, size_t tables) {
  scratch_.reserve(device_rows_scratch(tables));
  DeviceArena sizes;
  DeviceTransit::take(sizes, rows, tables);
  if (sizes.used() <= index_memory_.bytes()) return;
  usable_ = false;
  index_memory_.reserve(sizes.used());
}

void RowsInTransit::send(const std::vector<GpuTier*>& tiers,
                         const std::vector<DeviceHostRows>& host_rows,
                         const std::vector<uint32_t>& first, const DeviceOutgoing& rows,
                         DeviceBlock* memory, DeviceStream stream) {
  const size_t tables = tiers.size();
  usable_ = false;
  // Later work of the stream may use the memory of the rows before, which they then have left.
  hold_host_rows(tiers, stream);
  DeviceArena arena = index_memory_.arena();
  rows_ = DeviceTransit::take(arena, first[tables], tables);
  rows_.rows = rows.base;
  rows_.stride = rows.stride;
  device_index_transit(rows_, tables, first.data(), stream);
  updated_.record(stream);
  updated_.hold(stream_.get());
  device_write_back(host_rows.data(), tables, first.data(), rows, scratch_.data(), scratch_.bytes(),
                    stream_.get());
  gone_->record_or_wait(stream_.get());
  std::swap(memory_, *memory);
  for (GpuTier* tier : tiers) tier->note_host_rows_in_transit(gone_);
  tiers_ = tiers;
  usable_ = true;
}

bool RowsInTransit::newest(const std::vector<GpuTier*>& tiers) const {
  if (!usable_ || tiers != tiers_) return false;
  return std::all_of(tiers.begin(), tiers.end(),
                     [&](const GpuTier* tier) { return tier->in_transit_by(gone_); });
}

DeviceTransit RowsInTransit::use(const std::vector<GpuTier*>& tiers, bool changes,
                                 DeviceStream stream) {
  if (!newest(tiers)) {
    hold_host_rows(tiers, stream);
    return {};
  }
  // Later work would find rows here that are not the newest.
  if (changes) usable_ = false;
  return rows_;
}

}  // namespace hotrow

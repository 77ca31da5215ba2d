#include <algorithm>
#include <cstring>

#include "core/gpu/kernels/device_code.h"
#include "core/gpu/step/prefetch.h"
#include "core/gpu/step/tier.h"
#include "core/table/host_search.h"
#include "core/table/table.h"

namespace hotrow {
namespace {

// Distinct keys looked up while the table's lock is held once: about a millisecond when all rows
// come in.
constexpr size_t kPieceKeys = 4096;

}  // namespace

// Of a piece of `count` keys, on the device.
struct DevicePrefetch::Piece {
  Piece(DeviceArena& arena, size_t count) {
    unique = DeviceUnique::take(arena, count, 1);
    probed = DeviceProbed::take(arena, count, 1);
    places = arena.take<uint32_t>(count);
    inserted = DeviceInserted::take(arena, count, 1);
    scratch_bytes = std::max({device_cache_probe_scratch(count),
                              device_cache_insert_scratch(count, 1), device_rows_scratch(1)});
    scratch = arena.take<std::byte>(scratch_bytes);
  }
  DeviceUnique unique;
  DeviceProbed probed;
  uint32_t* places;
  DeviceInserted inserted;
  size_t scratch_bytes;
  std::byte* scratch;
};

// Data to and from the device, in pinned memory.
struct DevicePrefetch::Answer {
  Answer(DeviceArena& arena, size_t count) {
    keys = arena.take<int64_t>(count);
    hashes = arena.take<uint64_t>(count);
    missing_first = arena.take<uint32_t>(2);
    missing = arena.take<uint32_t>(count);
    places = arena.take<uint32_t>(count);
    bypass_first = arena.take<uint32_t>(3);
    victims = arena.take<RowHeader>(count);
    victim_places = arena.take<uint32_t>(count);
  }
  int64_t* keys;
  uint64_t* hashes;
  uint32_t *missing_first, *missing, *places;
  uint32_t* bypass_first;  // (2), and how many rows were evicted
  RowHeader* victims;
  uint32_t* victim_places;
};

DevicePrefetch::DevicePrefetch(Table& table, GpuTier& tier)
    : table_(&table),
      tier_(&tier),
      queue_([this](const std::vector<int64_t>& keys) { bring_in(keys); }) {}

DevicePrefetch::~DevicePrefetch() {
  queue_.stop();
  ignore(cudaStreamSynchronize(stream_.get()));
}

void DevicePrefetch::bring_in(const std::vector<int64_t>& keys) {
  const OnDevice here(tier_->device());
  unique_.run(keys.data(), keys.size());
  Window* window;
  uint64_t voided;
  {
    const auto lock = table_->lock_beside_steps();
    window = &windows_[next_window_++ % 2];
    let_go(window);
    window->slots = take_from(
        window->memory, [&](DeviceArena& arena) { return arena.take<uint32_t>(unique_.size()); });
    voided = voided_;
  }
  for (size_t first = 0; first < unique_.size(); first += piece_keys()) {
    if (queue_.stopping()) return;
    const auto lock = tier_->lock_when_idle(stream_.get(), &idle_);
    if (voided_ != voided) return;
    look_up(window, first, std::min(unique_.size(), first + piece_keys()));
  }
}

size_t DevicePrefetch::piece_keys() const { return std::min(kPieceKeys, tier_->piece_rows()); }

void DevicePrefetch::look_up(Window* window, size_t first, size_t last) {
  const size_t count = last - first;
  const DeviceStream stream = stream_.get();
  Piece piece = take_from(piece_, [&](DeviceArena& arena) { return Piece(arena, count); });
  const Answer answer =
      take_from(answer_, [&](DeviceArena& arena) { return Answer(arena, count); });
  std::memcpy(answer.keys, unique_.keys() + first, count * sizeof(int64_t));
  std::memcpy(answer.hashes, unique_.hashes() + first, count * sizeof(uint64_t));
  const uint32_t begins[] = {0, static_cast<uint32_t>(count)};
  // The found slots are written to the window's list.
  piece.probed.slots = window->slots + first;
  const SlotUse use(*tier_, stream);
  copy_async(piece.unique.keys, answer.keys, count, stream);
  copy_async(piece.unique.hashes, answer.hashes, count, stream);
  upload(piece.unique.table_first, begins, 2, stream);
  tier_->change_slots([&] {
    device_cache_probe(tier_->cache_on_device(), 1, piece.unique, count, DeviceLookup::kPin,
                       piece.probed, piece.scratch, piece.scratch_bytes, stream);
  });
  window->looked_up = last;
  copy_async(answer.missing_first, piece.probed.missing_first, 2, stream);
  copy_async(answer.missing, piece.probed.missing, count, stream);
  ready_.record(stream);
  ready_.wait();
  const size_t missing = answer.missing_first[1];
  if (missing > 0) bring_in_missing(piece, answer, first, missing);
}

void DevicePrefetch::bring_in_missing(const Piece& piece, const Answer& answer, size_t first,
                                      size_t missing) {
  const int64_t* keys = unique_.keys() + first;
  const uint64_t* hashes = unique_.hashes() + first;
  size_t m = 0, found = 0;
  search_host(*table_, keys, hashes, answer.missing, missing,
              [&](size_t u, const Partition& partition) {
                const uint32_t place = partition.find(hashes[u], keys[u]);
                const bool exists = place != Partition::kAbsent;
                found += exists ? 1 : 0;
                answer.places[m++] = exists ? place : kNoSlot;
              });
  if (found == 0) return;
  new_blocks_.send({&tier_->host_rows()}, stream_.get());
  copy_async(piece.places, answer.places, missing, stream_.get());
  tier_->change_slots([&] { give_slots(piece, answer, missing, found); });
}

void DevicePrefetch::give_slots(const Piece& piece, const Answer& answer, size_t missing,
                                size_t found) {
  const DeviceStream stream = stream_.get();
  // A row whose set is full of pinned rows would go through the bypass; here it gets no memory.
  const DeviceBypass outside;
  const DeviceInserted& out = piece.inserted;
  const bool watching = table_->watching();
  device_cache_insert(&tier_->cache(), 1, piece.unique, piece.probed, missing, piece.places,
                      DeviceLookup::kPin, RowCache::Admit::kAlways, outside, out, piece.scratch,
                      piece.scratch_bytes, stream);
  copy_async(answer.bypass_first, out.bypass_first, 3, stream);
  if (watching) {
    copy_async(answer.victims, out.victims, missing, stream);
    copy_async(answer.victim_places, out.victim_places, missing, stream);
  }
  ready_.record(stream);
  ready_.wait();
  CacheCounts counts;
  counts.prefetched = found - answer.bypass_first[1];
  counts.evicted = answer.bypass_first[2];
  table_->note_cached(counts);
  if (watching) {
    tier_->wait_for_transit();
    tier_->before_write_back(answer.victims, answer.victim_places, missing, Executor());
  }
  hold_host_rows({tier_}, stream);
  const DeviceHostRows rows = tier_->host_rows().rows();
  device_bring_in(&rows, 1,
                  {piece.probed.missing_first,
                   piece.probed.missing_keys,
                   piece.places,
                   out.targets,
                   out.victim_places,
                   {}},
                  missing, piece.scratch, piece.scratch_bytes, stream);
}

// --- pins ---------------------------------------------------------------------------------------

void DevicePrefetch::let_go(Window* window) {
  if (window->looked_up == 0) return;
  const OnDevice here(tier_->device());
  const DeviceStream stream = stream_.get();
  const uint32_t begins[] = {0, static_cast<uint32_t>(window->looked_up)};
  uint32_t* const first =
      take_from(released_, [](DeviceArena& arena) { return arena.take<uint32_t>(2); });
  const SlotUse use(*tier_, stream);
  upload(first, begins, 2, stream);
  device_cache_unpin(tier_->cache_on_device(), 1, first, window->slots, window->looked_up, {},
                     stream);
  window->looked_up = 0;
}

void DevicePrefetch::let_go_of_all() {
  ++voided_;
  for (Window& window : windows_) let_go(&window);
}

void DevicePrefetch::leave_out_free(DeviceStream stream) {
  for (const Window& window : windows_) {
    device_cache_leave_out_free(tier_->cache(), window.slots, window.looked_up, stream);
  }
}

void DevicePrefetch::forget() {
  ++voided_;
  for (Window& window : windows_) window.looked_up = 0;
}

size_t DevicePrefetch::bytes() const {
  return piece_.bytes() + released_.bytes() + new_blocks_.bytes() + windows_[0].memory.bytes() +
         windows_[1].memory.bytes();
}

}  // namespace hotrow

// Rows between slots and the host tier, as kernels move them: what is written, and what is not.
#include "core/gpu/kernels/lines.h"

#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "core/gpu/kernels/cache.h"
#include "core/table/row_place.h"
#include "tests/gpu/device_array.h"

namespace hotrow {
namespace {

constexpr unsigned kFirstShift = 1;
constexpr size_t kPlaces = 300;  // of a partition: several blocks

size_t round_up_to(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// The rows of a table in registered memory, each full of bytes of its own. A key's place is any.
class HostTable {
 public:
  HostTable(size_t line_bytes, int32_t shards, bool hashed)
      : row_bytes_(sizeof(RowHeader) + line_bytes),
        stride_(round_up_to(row_bytes_, 8)),
        shards_(shards),
        hashed_(hashed),
        partitions_(static_cast<size_t>(shards) << kPartitionBits),
        most_blocks_(spot_of(kPlaces - 1, kFirstShift).block + 1),
        memory_(partitions_ * kPlaces * 2 * stride_),
        blocks_(partitions_ * most_blocks_),
        written_back_(std::vector<uint64_t>{0}) {
    must(cudaHostRegister(memory_.data(), memory_.size(), cudaHostRegisterMapped));
    std::vector<std::byte*> there;
    for (size_t i = 0; i < memory_.size(); ++i)
      memory_[i] = static_cast<std::byte>(i * 7 + i / 255);
    size_t used = 0;
    for (size_t p = 0; p < partitions_; ++p) {
      for (size_t b = 0; b < most_blocks_; ++b) {
        addresses_.push_back(memory_.data() + used);
        void* at = nullptr;
        must(cudaHostGetDevicePointer(&at, addresses_.back(), 0));
        there.push_back(static_cast<std::byte*>(at));
        used += (size_t{1} << (kFirstShift + (b >> RowSpot::kBlockBits))) * stride_;
      }
    }
    REQUIRE(used <= memory_.size());
    blocks_.write(there);
  }
  ~HostTable() { must(cudaHostUnregister(memory_.data())); }
  HostTable(const HostTable&) = delete;

  size_t row_bytes() const { return row_bytes_; }
  uint64_t written_back() const { return written_back_.read()[0]; }
  std::byte* row(int64_t key, uint32_t place) {
    const uint64_t hash = mix64(static_cast<uint64_t>(key));
    const size_t partition = partition_number_of(key, hash, shards_, hashed_);
    const RowSpot spot = spot_of(place, kFirstShift);
    return addresses_[partition * most_blocks_ + spot.block] + spot.row * stride_;
  }
  DeviceHostRows rows() const {
    DeviceHostRows rows;
    rows.blocks = blocks_.data();
    rows.written_back = written_back_.data();
    rows.most_blocks = static_cast<uint32_t>(most_blocks_);
    rows.first_shift = kFirstShift;
    rows.stride = static_cast<uint32_t>(stride_);
    rows.row_bytes = static_cast<uint32_t>(row_bytes_);
    rows.shards = shards_;
    rows.hashed = hashed_ ? 1 : 0;
    return rows;
  }

 private:
  size_t row_bytes_, stride_;
  int32_t shards_;
  bool hashed_;
  size_t partitions_, most_blocks_;
  std::vector<std::byte> memory_;
  std::vector<std::byte*> addresses_;
  DeviceArray<std::byte*> blocks_;
  DeviceArray<uint64_t> written_back_;
};

struct Key {
  int64_t key;
  uint32_t place;
};

std::vector<Key> keys_of(std::mt19937_64& random, size_t count) {
  std::vector<Key> keys;
  for (size_t i = 0; i < count; ++i) {
    keys.push_back({static_cast<int64_t>(random()), static_cast<uint32_t>(i % kPlaces)});
  }
  return keys;
}

std::vector<std::byte> bytes_at(const std::byte* at, size_t count) { return {at, at + count}; }

// Rows on the device, 16-byte aligned.
class Rows {
 public:
  Rows(size_t count, size_t row_bytes)
      : stride(round_up_to(row_bytes, 16)), bytes(count * stride), device(count * stride) {}
  std::byte* at(size_t i) { return bytes.data() + i * stride; }
  void write() { device.write(bytes); }
  const size_t stride;
  std::vector<std::byte> bytes;
  DeviceArray<std::byte> device;
};

RowHeader header_at(const std::byte* row) {
  RowHeader header;
  std::memcpy(&header, row, sizeof(header));
  return header;
}

}  // namespace

TEST_CASE("device rows: come in from the blocks of several tables while dirty rows go there") {
  std::mt19937_64 random(1);
  // Strides of 16 n and of 16 n + 8; the last is longer than what lanes read at once.
  HostTable a(20, 1, false), b(28, 3, true), c(4000, 2, false);
  HostTable* const tables[] = {&a, &b, &c};
  const size_t counts[] = {50, 0, 37};
  const size_t rows = 87, slot = 4096;
  std::vector<uint32_t> first(1, 0), places, victim_places;
  std::vector<int64_t> keys;
  std::vector<std::byte*> targets;
  Rows slots(rows, slot - 16);
  REQUIRE(slots.stride <= slot);
  std::vector<std::vector<std::byte>> expected_in, expected_out, before_out;
  std::vector<std::byte*> out;
  for (size_t t = 0; t < 3; ++t) {
    const auto in = keys_of(random, counts[t]), gone = keys_of(random, counts[t]);
    for (size_t i = 0; i < counts[t]; ++i) {
      const size_t row = keys.size();
      keys.push_back(in[i].key);
      places.push_back(in[i].place);
      targets.push_back(i % 5 == 4 ? nullptr : slots.device.data() + row * slots.stride);
      for (size_t k = 0; k < slots.stride; ++k) {
        slots.at(row)[k] = static_cast<std::byte>(random());
      }
      // The dirty row lies at a place of the second half, where no row that comes in lies.
      const bool victim = i % 3 == 0 && targets.back() != nullptr;
      victim_places.push_back(victim ? (gone[i].place + kPlaces / 2) % kPlaces : kNoSlot);
      if (victim) {
        std::memcpy(slots.at(row), &gone[i].key, sizeof(int64_t));
        std::byte* const at = tables[t]->row(gone[i].key, victim_places.back());
        std::memcpy(at, &gone[i].key, sizeof(int64_t));
        out.push_back(at);
        expected_out.push_back(bytes_at(slots.at(row), tables[t]->row_bytes()));
      }
    }
    first.push_back(static_cast<uint32_t>(keys.size()));
  }
  for (size_t t = 0; t < 3; ++t) {
    for (size_t i = first[t]; i < first[t + 1]; ++i) {
      expected_in.push_back(bytes_at(tables[t]->row(keys[i], places[i]), tables[t]->row_bytes()));
    }
  }
  slots.write();
  const DeviceArray<uint32_t> device_first(first), device_places(places);
  const DeviceArray<uint32_t> device_victims(victim_places);
  const DeviceArray<int64_t> device_keys(keys);
  const DeviceArray<std::byte*> device_targets(targets);
  const DeviceHostRows all[] = {a.rows(), b.rows(), c.rows()};
  const DeviceArray<std::byte> scratch(device_rows_scratch(3));
  device_bring_in(all, 3,
                  {device_first.data(),
                   device_keys.data(),
                   device_places.data(),
                   device_targets.data(),
                   device_victims.data(),
                   {}},
                  rows, scratch.data(), scratch.size(), kStream);
  must(cudaDeviceSynchronize());
  const std::vector<std::byte> now = slots.device.read();
  size_t wrong = 0;
  for (size_t i = 0; i < rows; ++i) {
    const std::byte* const at = now.data() + i * slots.stride;
    if (targets[i] == nullptr) {
      wrong += bytes_at(at, slots.stride) != bytes_at(slots.at(i), slots.stride);
    } else {
      wrong += bytes_at(at, expected_in[i].size()) != expected_in[i];
    }
  }
  CHECK(wrong == 0);
  for (size_t i = 0; i < out.size(); ++i) {
    CHECK(bytes_at(out[i], expected_out[i].size()) == expected_out[i]);
  }
  CHECK(a.written_back() + c.written_back() == out.size());
  CHECK(b.written_back() == 0);
}

TEST_CASE("device rows: a row that is up to date is not written, and no row's key is") {
  std::mt19937_64 random(2);
  for (const size_t line_bytes : {size_t{8}, size_t{20}, size_t{260}}) {
    CAPTURE(line_bytes);
    HostTable table(line_bytes, 1, false);
    const auto keys = keys_of(random, 4);
    Rows rows(keys.size(), table.row_bytes());
    std::vector<uint32_t> places;
    std::vector<std::vector<std::byte>> before;
    // Two headers that are the host's, one of them saturated; a later clock; one lookup more.
    const RowHeader host[] = {{0, 7, 3}, {0, 7, UINT32_MAX}, {0, 7, 3}, {0, 7, 3}};
    const RowHeader newer[] = {{0, 7, 3}, {0, 7, UINT32_MAX}, {0, 8, 3}, {0, 7, 4}};
    for (size_t i = 0; i < keys.size(); ++i) {
      std::byte* const at = table.row(keys[i].key, keys[i].place);
      std::memcpy(at, &host[i], sizeof(RowHeader));
      const int64_t other = keys[i].key + 1;  // what the kernel must not write over
      std::memcpy(at, &other, sizeof(other));
      before.push_back(bytes_at(at, table.row_bytes()));
      for (size_t k = 0; k < rows.stride; ++k) rows.at(i)[k] = static_cast<std::byte>(random());
      std::memcpy(rows.at(i), &newer[i], sizeof(RowHeader));
      std::memcpy(rows.at(i), &keys[i].key, sizeof(int64_t));
      places.push_back(keys[i].place);
    }
    rows.write();
    const DeviceArray<uint32_t> device_places(places);
    const DeviceHostRows all = table.rows();
    const uint32_t begins[] = {0, static_cast<uint32_t>(keys.size())};
    const DeviceArray<std::byte> scratch(device_rows_scratch(1));
    device_write_back(&all, 1, begins,
                      {nullptr, rows.device.data(), rows.stride, device_places.data(), nullptr},
                      scratch.data(), scratch.size(), kStream);
    must(cudaDeviceSynchronize());
    CHECK(table.written_back() == 3);
    for (size_t i = 0; i < keys.size(); ++i) {
      CAPTURE(i);
      const std::byte* const at = table.row(keys[i].key, keys[i].place);
      CHECK(header_at(at).key == keys[i].key + 1);
      if (i == 0) {
        CHECK(bytes_at(at, table.row_bytes()) == before[i]);
        continue;
      }
      CHECK(header_at(at).clock == newer[i].clock);
      CHECK(header_at(at).count == newer[i].count);
      CHECK(bytes_at(at + sizeof(RowHeader), line_bytes) ==
            bytes_at(rows.at(i) + sizeof(RowHeader), line_bytes));
    }
  }
}

TEST_CASE("device rows: only as many rows as the device counted go out") {
  std::mt19937_64 random(3);
  HostTable table(20, 1, false);
  const auto keys = keys_of(random, 6);
  Rows rows(keys.size(), table.row_bytes());
  std::vector<std::byte*> pointers;
  std::vector<uint32_t> places;
  for (size_t i = 0; i < keys.size(); ++i) {
    std::memcpy(rows.at(i), &keys[i].key, sizeof(int64_t));
    pointers.push_back(rows.device.data() + i * rows.stride);
    places.push_back(keys[i].place);
  }
  rows.write();
  const DeviceArray<std::byte*> device_pointers(pointers);
  const DeviceArray<uint32_t> device_places(places), count(std::vector<uint32_t>{4});
  const DeviceHostRows all = table.rows();
  const uint32_t begins[] = {0, static_cast<uint32_t>(keys.size())};
  const DeviceArray<std::byte> scratch(device_rows_scratch(1));
  device_write_back(&all, 1, begins,
                    {device_pointers.data(), nullptr, 0, device_places.data(), count.data()},
                    scratch.data(), scratch.size(), kStream);
  must(cudaDeviceSynchronize());
  CHECK(table.written_back() == 4);
  for (size_t i = 0; i < keys.size(); ++i) {
    CHECK((header_at(table.row(keys[i].key, keys[i].place)).clock == 0) == (i < 4));
  }
}

}  // namespace hotrow

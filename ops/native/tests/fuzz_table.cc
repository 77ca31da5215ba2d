// Random operations on a small table, checked against a model: libFuzzer's bytes choose them.
// Every number is a small integer, so that sums are exact in any order.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "core/base/status.h"
#include "tests/one_table.h"

namespace hotrow {
namespace {

#define EXPECT(condition)                                                                \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

constexpr size_t kWidth = 2;
constexpr float kFirst = 3.0f;     // of new rows
constexpr float kDefault = 50.0f;  // of unknown keys

// The input; zeros after its end.
class Choices {
 public:
  Choices(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  bool done() const { return left_ == 0; }
  uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  uint32_t below(uint32_t limit) { return byte() % limit; }
  // 48 keys of both signs and all magnitudes; or 48 keys that share a set of the device tier.
  int64_t key() {
    const uint32_t choice = below(48);
    if (crowded) return crowd()[choice];
    const int64_t key = static_cast<int64_t>(choice % 16);
    if (choice < 16) return key;
    return choice < 32 ? -1 - key : INT64_MIN + (key << 58);
  }
  std::vector<int64_t> keys() {
    std::vector<int64_t> keys(crowded ? below(33) : below(9));
    for (int64_t& key : keys) key = this->key();
    return keys;
  }
  bool crowded = false;

 private:
  // The least device tier has a set of 16 ways for each value of the hash's top bits.
  static const std::vector<int64_t>& crowd() {
    static const std::vector<int64_t> keys = [] {
      std::vector<int64_t> found;
      for (int64_t i = 0; found.size() < 48; ++i) {
        const int64_t key = i % 2 == 0 ? i : INT64_MIN + i;
        if (mix64(static_cast<uint64_t>(key)) >> (64 - RowCache::kPartitionBits) == 9) {
          found.push_back(key);
        }
      }
      return found;
    }();
    return keys;
  }

  const uint8_t* data_;
  size_t left_;
};

struct ModelRow {
  float weight = kFirst;
  uint32_t clock = 0;
  uint32_t count = 0;
  bool operator==(const ModelRow& other) const {
    return weight == other.weight && clock == other.clock && count == other.count;
  }
};

using ModelRows = std::map<int64_t, ModelRow>;

ModelRows model_rows(const Rows& rows) {
  ModelRows model;
  for (const Row& row : rows) {
    float weights[kWidth];
    std::memcpy(weights, row.line.data(), sizeof(weights));
    EXPECT(weights[0] == weights[1]);
    EXPECT(model.emplace(row.key, ModelRow{weights[0], row.clock, row.count}).second);
  }
  return model;
}

struct Model {
  TableOptions options;
  ModelRows rows;
  std::map<int64_t, uint64_t> occurrences;
  std::map<int64_t, uint32_t> tombstones;
  uint32_t step = 0;

  bool admits() const { return options.admission.kind != AdmissionKind::kAlways; }

  void insert(int64_t key) {
    rows[key].clock = step + 1;
    tombstones.erase(key);
  }
  // A forward pass that trains.
  void count_occurrences(const std::vector<int64_t>& keys) {
    std::map<int64_t, uint32_t> times;
    for (const int64_t key : keys) ++times[key];
    for (const auto& [key, count] : times) {
      if (rows.count(key) != 0) continue;
      if (!admits()) {
        insert(key);
      } else if (occurrences[key] + count >= options.admission.occurrences) {
        // A filter cannot drop a count: the key comes back with its old count.
        if (options.admission.kind == AdmissionKind::kCounter) occurrences.erase(key);
        insert(key);
      } else {
        occurrences[key] += count;
      }
    }
  }
  void update(const std::vector<int64_t>& keys, const std::vector<float>& gradients) {
    for (const int64_t key : keys) {
      if (rows.count(key) == 0 && !admits()) insert(key);
    }
    ++step;
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto found = rows.find(keys[i]);
      if (found == rows.end()) continue;
      found->second.weight -= gradients[i];
      found->second.clock = step;
      ++found->second.count;
    }
    sweep();
  }
  void sweep() {
    const ExpiryOptions& expiry = options.expiry;
    if (!expiry.any()) return;
    for (auto at = rows.begin(); at != rows.end();) {
      const ModelRow& row = at->second;
      const uint32_t age = row.clock > step ? 0 : step - row.clock;
      const bool old = expiry.after_steps != 0 && age > expiry.after_steps;
      const bool rare = row.count < expiry.rare_count && age > expiry.rare_after_steps;
      if (row.clock > step || (!old && !rare)) {
        ++at;
        continue;
      }
      tombstones[at->first] = step;
      at = rows.erase(at);
    }
  }
};

class Session {
 public:
  explicit Session(Choices choices) : choices_(choices) {
    TableOptions& options = model_.options;
    options.width = kWidth;
    options.default_value = kDefault;
    options.init = {InitKind::kConstant, kFirst, 0, 0};
    options.optimizer.kind = OptimizerKind::kSgd;
    options.optimizer.learning_rate = 1.0f;
    const uint32_t admission = choices_.below(4);
    if (admission == 1) options.admission = {AdmissionKind::kCounter, 2 + choices_.below(5), 0, 0};
    if (admission == 2) {
      options.admission = {AdmissionKind::kFilter, 2 + choices_.below(5), 100000, 1e-9};
    }
    options.expiry.sweep_steps = 1;
    const uint32_t expiry = choices_.below(4);
    if (expiry % 2 == 1) options.expiry.after_steps = 1 + choices_.below(5);
    if (expiry >= 2) {
      options.expiry.rare_count = choices_.below(5);
      options.expiry.rare_after_steps = choices_.below(5);
    }
    const uint32_t shards = choices_.below(6);
    shards_ = static_cast<int32_t>(1 + shards / 2);
    hashed_ = shards % 2 == 1;
    const uint32_t tiers = choices_.below(8);
    if (tiers > 0) {
      options.cache = {1, tiers % 2 == 0 ? CachePolicy::kLfu : CachePolicy::kLru};
      choices_.crowded = true;
      if (tiers == 7) options.disk = std::filesystem::temp_directory_path().string();
    }
    table_ = new_table();
  }

  void run() {
    while (!choices_.done()) {
      operate();
      if (choices_.below(4) == 0) check();
    }
    check();
    snapshot_.reset();
    check();
  }

 private:
  std::unique_ptr<Table> new_table() const {
    auto table = std::make_unique<Table>("t", model_.options, shards_, hashed_);
    table->keep_tombstones();
    return table;
  }

  void operate() {
    switch (choices_.below(17)) {
      case 0:
        return look_up_only();
      case 1:
        return train_step(true);
      case 2:
        return train_step(false);
      case 3: {
        const std::vector<int64_t> keys = choices_.keys();
        look_up(*table_, keys, true);
        return model_.count_occurrences(keys);
      }
      case 4:
        return remove();
      case 5:
        return accumulate();
      case 6:
        return import();
      case 7:
        return restore();
      case 8:
        return open();
      case 9:
        return read();
      case 10:
        return close();
      case 11: {
        const uint32_t step = choices_.below(100);
        table_->forget_tombstones(step);
        for (auto at = model_.tombstones.begin(); at != model_.tombstones.end();) {
          at = at->second <= step ? model_.tombstones.erase(at) : std::next(at);
        }
        return;
      }
      case 12:
        return clear();
      case 13: {
        const std::vector<int64_t> keys = choices_.keys();
        return table_->prefetch(keys.data(), keys.size());
      }
      case 14:
        return table_->wait_for_prefetch();
      case 15: {
        std::vector<int64_t> keys = choices_.keys();
        std::sort(keys.begin(), keys.end());
        keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
        std::vector<uint32_t> counts(keys.size());
        for (uint32_t& count : counts) count = choices_.byte();
        table_->warm_up(keys.data(), counts.data(), keys.size(), choices_.below(5) / 4.0);
        return;
      }
      default:
        return damage();
    }
  }

  template <typename Call>
  Code code_of(Call&& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code();
    }
    return Code::kOk;
  }
  // Runs a call that an open snapshot forbids; false: it was refused.
  template <typename Call>
  bool unless_open(Call&& call) {
    const Code code = code_of(call);
    EXPECT(code == (snapshot_ == nullptr ? Code::kOk : Code::kFailedPrecondition));
    return code == Code::kOk;
  }

  void look_up_only() {
    const std::vector<int64_t> keys = choices_.keys();
    const std::vector<float> rows = look_up(*table_, keys, false);
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto found = model_.rows.find(keys[i]);
      const float expected = found == model_.rows.end() ? kDefault : found->second.weight;
      for (size_t j = 0; j < kWidth; ++j) EXPECT(rows[i * kWidth + j] == expected);
    }
  }

  std::vector<float> gradients_of(size_t count, std::vector<float>* wide) {
    std::vector<float> gradients(count);
    wide->clear();
    for (float& gradient : gradients) {
      gradient = static_cast<float>(choices_.below(17)) - 8.0f;
      wide->insert(wide->end(), kWidth, gradient);
    }
    return gradients;
  }

  void train_step(bool forward_first) {
    const std::vector<int64_t> keys = choices_.keys();
    std::vector<float> wide;
    const std::vector<float> gradients = gradients_of(keys.size(), &wide);
    if (forward_first) {
      look_up(*table_, keys, true);
      model_.count_occurrences(keys);
    }
    update(*table_, keys, wide);
    model_.update(keys, gradients);
  }

  // Gradients of several passes wait for one commit, while rows come and go.
  void accumulate() {
    if (model_.admits()) return;
    std::vector<float> commit_token(GradientPasses::kSlots, 0.0f);
    std::vector<int64_t> all_keys;
    std::vector<float> all_gradients;
    const uint32_t passes = 1 + choices_.below(3);
    for (uint32_t pass = 0; pass < passes; ++pass) {
      const std::vector<int64_t> keys = choices_.keys();
      std::vector<float> wide, rows(keys.size() * kWidth);
      const std::vector<float> gradients = gradients_of(keys.size(), &wide);
      const LayerCall call = call_of(*table_, keys);
      BackwardOptions options;
      options.slot = table_->passes.next_slot();
      const int64_t ticket = forward(call, true, {rows.data()}, nullptr);
      model_.count_occurrences(keys);
      if (choices_.below(2) == 0) options.ticket = ticket;
      if (choices_.below(4) == 0) remove();
      for (const int64_t key : keys) {
        if (model_.rows.count(key) == 0) model_.insert(key);
      }
      backward(call, {wide.data()}, options);
      commit_token[options.slot] = GradientPasses::kUnit;
      all_keys.insert(all_keys.end(), keys.begin(), keys.end());
      all_gradients.insert(all_gradients.end(), gradients.begin(), gradients.end());
    }
    if (choices_.below(4) == 0) remove();
    commit({table_.get()}, commit_token.data(), nullptr, 0.0f, Executor());
    model_.update(all_keys, all_gradients);
  }

  void remove() {
    const std::vector<int64_t> keys = choices_.keys();
    size_t removed = 0;
    if (!unless_open([&] { removed = table_->remove_rows(keys.data(), keys.size()); })) return;
    for (const int64_t key : keys) removed -= model_.rows.erase(key);
    EXPECT(removed == 0);
  }

  void import() {
    Rows rows = exported(*table_, 5);
    Rows some;
    for (Row& row : rows) {
      if (choices_.below(3) != 0) continue;
      const float weight = static_cast<float>(choices_.below(64));
      for (size_t j = 0; j < kWidth; ++j) {
        std::memcpy(row.line.data() + j * sizeof(float), &weight, sizeof(float));
      }
      row.clock = choices_.below(64);
      row.count = choices_.below(64);
      some.push_back(row);
    }
    const bool places = choices_.below(2) == 0;
    if (!places && choices_.below(2) == 0) {
      Row row;
      row.key = choices_.key();
      row.line.resize(table_->line_bytes());
      some.push_back(row);
    }
    if (!unless_open([&] { import_all(*table_, some, places); })) return;
    for (const auto& [key, row] : model_rows_last_wins(some)) {
      model_.rows[key] = row;
      model_.tombstones.erase(key);
    }
  }
  static ModelRows model_rows_last_wins(const Rows& rows) {
    ModelRows all;
    for (const Row& row : rows) {
      for (const auto& [key, one] : model_rows({row})) all[key] = one;
    }
    return all;
  }

  // The test continues with a restored copy of the table.
  void restore() {
    auto copy = new_table();
    if (choices_.below(2) == 0) train(*copy, choices_.keys(), 1.0f), copy->clear();
    import_all(*copy, exported(*table_, 5), true);
    const std::vector<uint8_t> state = table_->state();
    copy->set_state(state.data(), state.size());
    EXPECT(exported(*copy, 3) == exported(*table_, 4));
    EXPECT(copy->state() == state);
    EXPECT(digest_of(*copy) == digest_of(*table_));
    Table other("t", model_.options, 4 - shards_, !hashed_);
    import_all(other, exported(*table_), false);
    EXPECT(digest_of(other) == digest_of(*table_));
    other.set_state(state.data(), state.size());
    EXPECT(other.step() == model_.step);
    if (snapshot_ != nullptr) return;
    table_ = std::move(copy);
    based_ = false;  // the copy has no kept snapshot
  }

  void open() {
    const bool due_only = based_ && choices_.below(4) != 0;
    if (snapshot_ != nullptr) {
      EXPECT(code_of([&] { table_->open_snapshot(due_only ? Since::kCheckpoint : Since::kAll); }) ==
             Code::kFailedPrecondition);
      return;
    }
    snapshot_ = table_->open_snapshot(due_only ? Since::kCheckpoint : Since::kAll);
    snapshot_rows_ = model_.rows;
    snapshot_due_only_ = due_only;
    read_.clear();
    at_end_ = false;
    EXPECT(snapshot_->step() == model_.step);
    EXPECT(snapshot_->state() == table_->state());
  }

  void read() {
    if (snapshot_ == nullptr) return;
    const size_t piece = 1 + choices_.below(9);
    RowRoom room(*table_, piece);
    const size_t count = snapshot_->read(piece, room.arrays());
    EXPECT(count <= piece);
    EXPECT(count == 0 || !at_end_);
    room.append_to(&read_, count);
    at_end_ = count == 0;
    EXPECT(read_.size() <= snapshot_->rows());
  }

  void close() {
    if (snapshot_ == nullptr) return;
    const bool keep = choices_.below(3) != 0;
    if (keep) {
      while (!at_end_) read();
      ModelRows now = snapshot_due_only_ ? stored_ : ModelRows();
      const std::vector<int64_t>& removed = snapshot_->removed();
      EXPECT(snapshot_due_only_ || removed.empty());
      for (const int64_t key : removed) now.erase(key);
      for (const auto& [key, row] : model_rows(read_)) now[key] = row;
      EXPECT(now == snapshot_rows_);
      stored_ = now;
      based_ = true;
    }
    snapshot_->close(keep);
    snapshot_.reset();
  }

  void clear() {
    if (choices_.below(8) != 0) return;
    if (!unless_open([&] { table_->clear(); })) return;
    const TableOptions options = model_.options;
    model_ = Model();
    model_.options = options;
  }

  // A state with some changed bytes is refused and changes nothing.
  void damage() {
    std::vector<uint8_t> state = table_->state();
    const std::vector<uint8_t> before = state;
    const size_t changes = choices_.below(4);
    for (size_t i = 0; i < changes; ++i) {
      const size_t at = (size_t{choices_.byte()} << 8 | choices_.byte()) % state.size();
      state[at] ^= choices_.byte();
    }
    if (choices_.below(2) == 0) state.resize(state.size() - choices_.below(200));
    auto copy = new_table();
    const std::vector<uint8_t> fresh = copy->state();
    const Code code = code_of([&] { copy->set_state(state.data(), state.size()); });
    if (state == before) {
      EXPECT(code == Code::kOk);
    } else {
      EXPECT(code == Code::kDataLoss || code == Code::kFailedPrecondition);
      EXPECT(copy->state() == fresh);
    }
  }

  void check() {
    const Rows rows = exported(*table_, 1 + choices_.below(20));
    EXPECT(model_rows(rows) == model_.rows);
    EXPECT(table_->size() == model_.rows.size());
    EXPECT(table_->step() == model_.step);
    std::set<std::pair<size_t, uint32_t>> places;
    for (const Row& row : rows) {
      const uint64_t hash = mix64(static_cast<uint64_t>(row.key));
      EXPECT(places.emplace(table_->partition_number(row.key, hash), row.place).second);
    }
    std::vector<int64_t> keys;
    std::vector<uint32_t> steps;
    table_->tombstones(&keys, &steps);
    EXPECT(keys.size() == model_.tombstones.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto found = model_.tombstones.find(keys[i]);
      EXPECT(found != model_.tombstones.end() && found->second == steps[i]);
    }
  }

  Choices choices_;
  Model model_;
  int32_t shards_ = 1;
  bool hashed_ = false;
  std::unique_ptr<Table> table_;
  // The rows of the chain of kept snapshots, and the open snapshot.
  bool based_ = false;
  ModelRows stored_;
  ModelRows snapshot_rows_;
  bool snapshot_due_only_ = false;
  bool at_end_ = false;
  Rows read_;
  std::unique_ptr<Snapshot> snapshot_;
};

}  // namespace
}  // namespace hotrow

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hotrow::Session(hotrow::Choices(data, size)).run();
  return 0;
}

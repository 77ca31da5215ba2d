// Snapshots for checkpoints and for publishing beside each other, against a model of the table.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/table/snapshot.h"
#include "tests/error_code.h"
#include "tests/failing_memory.h"
#include "tests/one_table.h"
#include "tests/temporary_directory.h"
#include "tests/test_size.h"

namespace hotrow {
namespace {

using Keys = std::vector<int64_t>;
using KeySet = std::set<int64_t>;

// A row: minus the sum of its gradients, and its clock.
struct Content {
  float weight;
  uint32_t clock;

  bool operator==(const Content& other) const {
    return weight == other.weight && clock == other.clock;
  }
};

using Model = std::map<int64_t, Content>;

Model model_of(const Rows& rows) {
  Model model;
  for (const Row& row : rows) {
    float weight;
    std::memcpy(&weight, row.line.data(), sizeof(weight));
    REQUIRE(model.emplace(row.key, Content{weight, row.clock}).second);
  }
  return model;
}

// What a step does to the rows. Every row is swept in every step.
void train_model(Model& model, const Keys& keys, uint32_t step, uint32_t after_steps,
                 KeySet* expired = nullptr) {
  for (const int64_t key : keys) {
    Content& row = model[key];
    row = {row.weight - 1.0f, step};
  }
  for (auto row = model.begin(); row != model.end();) {
    if (after_steps == 0 || row->second.clock + after_steps >= step) {
      ++row;
      continue;
    }
    if (expired != nullptr) expired->insert(row->first);
    row = model.erase(row);
  }
}

enum class Tier { kMemory, kCache, kDisk };

TableOptions options_of(Tier tier, const TemporaryDirectory& directory, uint32_t after_steps) {
  TableOptions options = plain_options(2);
  options.expiry.after_steps = after_steps;
  options.expiry.sweep_steps = 1;
  if (tier != Tier::kMemory) options.cache.rows = 32;
  if (tier == Tier::kDisk) options.disk = directory / "";
  return options;
}

// Reads the snapshots of one kind, and stores what those that were kept read.
struct Reader {
  bool expires = false;  // rows of the table do
  Model stored;
  KeySet changed;  // since the last kept one
  // The open one.
  std::unique_ptr<Snapshot> snapshot;
  bool due_only = false;
  Model moment;
  KeySet due;
  Rows rows;
  bool at_end = false;

  void begin(std::unique_ptr<Snapshot> opened, bool only_due, const Model& now) {
    snapshot = std::move(opened);
    due_only = only_due;
    moment = now;
    due.swap(changed);
    changed.clear();
    rows.clear();
    at_end = false;
  }
  void end(bool keep) {
    if (keep) {
      snapshot->close(true);
      const Model read = model_of(rows);
      if (!due_only) stored.clear();
      for (const int64_t key : snapshot->removed()) {
        CHECK(due_only);
        CHECK(due.count(key) == 1);
        stored.erase(key);
      }
      for (const auto& [key, row] : read) {
        // A sweep marks rows that look expired and are not.
        if (due_only && !expires) CHECK(due.count(key) == 1);
        stored[key] = row;
      }
      REQUIRE(stored == moment);
    } else {
      changed.insert(due.begin(), due.end());
    }
    snapshot.reset();
    due.clear();
  }
};

// Random operations on a table of few keys.
class Session {
 public:
  Session(Tier tier, uint32_t after_steps, bool admits_late, uint32_t seed)
      : after_steps_(after_steps),
        admits_late_(admits_late),
        memory_(tier == Tier::kMemory),
        random_(seed) {
    TableOptions options = options_of(tier, directory_, after_steps);
    if (admits_late) options.admission = {AdmissionKind::kCounter, 2, 0, 0.01};
    table_ = std::make_unique<Table>("t", options, 1 + static_cast<int32_t>(seed % 3), false);
    checkpoint_.expires = publish_.expires = after_steps > 0;
    table_->keep_tombstones();
    begin_publishing();
  }

  void run(int operations) {
    for (int i = 0; i < operations; ++i) operate();
    for (Reader* reader : {&checkpoint_, &publish_}) {
      if (reader->snapshot != nullptr) reader->end(false);
      open(*reader);
      while (reader->snapshot != nullptr && !reader->at_end) read(*reader);
      if (reader->snapshot != nullptr) reader->end(true);
    }
    CHECK(kept_ > operations / 400);
  }
  int lost() const { return lost_; }

 private:
  size_t below(size_t bound) { return random_() % bound; }
  Keys some_keys(size_t most) {
    Keys keys(below(most + 1));
    for (int64_t& key : keys) key = static_cast<int64_t>(below(150)) - 20;
    return keys;
  }
  // A lost snapshot has ended.
  bool any_open() const {
    const Snapshot* publish = publish_.snapshot.get();
    return checkpoint_.snapshot != nullptr || (publish != nullptr && !publish->lost());
  }
  void note_changed(int64_t key) {
    checkpoint_.changed.insert(key);
    publish_.changed.insert(key);
  }
  // After an operation: the table has the rows of the model, or with admission the model those of
  // the table.
  void follow() {
    if (!memory_) return;  // an export would bring the rows up to date
    const Model now = model_of(exported(*table_, 50));
    if (admits_late_) model_ = now;
    REQUIRE(now == model_);
  }

  void operate() {
    const size_t choice = below(100);
    if (choice < 35) {
      step();
    } else if (choice < 42) {
      create(some_keys(4));
    } else if (choice < 50) {
      fail_step();
    } else if (choice < 56) {
      change_outside();
    } else if (choice < 60) {
      mark();
    } else if (choice < 62) {
      begin_publishing();
    } else {
      use(below(2) == 0 ? checkpoint_ : publish_);
    }
    follow();
  }
  void use(Reader& reader) {
    if (reader.snapshot == nullptr) {
      open(reader);
    } else if (below(30) != 0) {
      for (size_t i = below(12); i > 0 && reader.snapshot != nullptr; --i) read(reader);
    } else {
      reader.end(false);
    }
  }

  void note_step(const Keys& keys) {
    KeySet expired;
    train_model(model_, keys, table_->step(), after_steps_, &expired);
    for (const int64_t key : keys) note_changed(key);
    for (const int64_t key : expired) note_changed(key);
  }
  void step() {
    const Keys keys = some_keys(25);
    train(*table_, keys, 1.0f);
    note_step(keys);
  }
  void note_created(const Keys& keys) {
    for (const int64_t key : keys) {
      model_.emplace(key, Content{0.0f, table_->step() + 1});
      note_changed(key);
    }
  }
  void create(const Keys& keys) {
    look_up(*table_, keys, true);
    note_created(keys);
  }
  // A step that may fail for want of memory, in its forward pass or after it.
  void fail_step() {
    if (!kFailingMemory) return;
    const Keys keys = some_keys(12);
    const auto tried = [&](auto&& part) {
      const FailingMemory memory(static_cast<int64_t>(below(25)), true);
      try {
        part();
        return true;
      } catch (const std::exception&) {
        return false;
      }
    };
    const size_t marked = table_->marked_rows();
    if (!tried([&] { look_up(*table_, keys, true); })) {
      // What it created is taken back, with the marks. But a cache may have written rows back, and
      // a snapshot may have been given up.
      if (memory_ && publish_.snapshot == nullptr) CHECK(table_->marked_rows() <= marked);
      return;
    }
    note_created(keys);
    const std::vector<float> ones(keys.size() * table_->width(), 1.0f);
    const uint32_t before = table_->step();
    if (tried([&] { update(*table_, keys, ones); })) note_step(keys);
    // Passes that found rows search for them again.
    REQUIRE(table_->step() >= before);
  }
  // Not beside a snapshot.
  void change_outside() {
    const Keys keys = some_keys(10);
    const size_t choice = below(12);
    const auto change = [&] {
      if (choice < 3) {
        table_->remove_rows(keys.data(), keys.size());
      } else if (choice < 7) {
        table_->bury_rows(keys.data(), keys.size());
      } else if (choice < 11) {
        import(keys);
      } else {
        table_->clear();
      }
    };
    if (any_open()) {
      CHECK(error_code(change) == Code::kFailedPrecondition);
      return;
    }
    change();
    if (choice < 7) {
      for (const int64_t key : keys) {
        if (model_.erase(key) == 1) note_changed(key);
      }
    } else if (choice == 11) {
      for (const auto& [key, row] : model_) note_changed(key);
      model_.clear();
    }
    // Clocks and tombstones show only what steps and bury_rows changed.
    if (choice < 3 || choice >= 7) clocks_show_all_ = false;
  }
  void import(const Keys& keys) {
    const KeySet distinct(keys.begin(), keys.end());
    Rows rows;
    for (const int64_t key : distinct) {
      Row row{key, static_cast<uint32_t>(below(table_->step() + 3)), 1, 0, {}};
      if (row.clock == 0) row.clock = 1;
      row.line.resize(table_->line_bytes());
      const float weight = static_cast<float>(below(100));
      for (size_t i = 0; i < table_->width(); ++i) {
        std::memcpy(row.line.data() + i * sizeof(weight), &weight, sizeof(weight));
      }
      rows.push_back(row);
    }
    import_all(*table_, rows, false);
    for (const auto& [key, row] : model_of(rows)) {
      model_[key] = row;
      note_changed(key);
    }
  }

  void mark() {
    const Keys keys = some_keys(6);
    table_->mark_for_publishing(keys.data(), keys.size());
    publish_.changed.insert(keys.begin(), keys.end());
  }
  // As a trainer that resumes: from the step of the last kept snapshot if clocks show all changes
  // since; else the next snapshot is a new base.
  void begin_publishing() {
    std::optional<uint32_t> since;
    if (clocks_show_all_) since = published_step_;
    const auto begin = [&] { table_->begin_publishing(since); };
    if (publish_.snapshot != nullptr && publish_.snapshot->lost()) publish_.end(false);
    if (publish_.snapshot != nullptr) {
      CHECK(error_code(begin) == Code::kFailedPrecondition);
      return;
    }
    begin();
    if (!since.has_value()) publish_.stored.clear();
    for (const auto& [key, row] : model_) {
      if (!since.has_value() || row.clock > *since) publish_.changed.insert(key);
    }
    Keys gone;
    std::vector<uint32_t> steps;
    table_->tombstones(&gone, &steps);
    publish_.changed.insert(gone.begin(), gone.end());
  }

  void open(Reader& reader) {
    const bool publishes = &reader == &publish_;
    const bool due_only = publishes || (based_ && below(4) != 0);
    std::shared_ptr<SnapshotBudget> budget;
    if (publishes && below(2) == 0) {
      budget = std::make_shared<SnapshotBudget>(SnapshotBudget::WhenSpent::kLose, below(30000));
    }
    const Since since = publishes ? Since::kPublish : due_only ? Since::kCheckpoint : Since::kAll;
    reader.begin(table_->open_snapshot(since, budget), due_only, model_);
    CHECK(error_code([&] { table_->open_snapshot(since); }) == Code::kFailedPrecondition);
    CHECK(reader.snapshot->step() == table_->step());
  }
  void read(Reader& reader) {
    Snapshot& snapshot = *reader.snapshot;
    const size_t piece = 1 + below(80);
    RowRoom room(*table_, piece);
    if (snapshot.lost()) {
      CHECK(&reader == &publish_);
      CHECK(error_code([&] { snapshot.read(piece, room.arrays()); }) == Code::kFailedPrecondition);
      CHECK(error_code([&] { snapshot.close(true); }) == Code::kFailedPrecondition);
      ++lost_;
      reader.end(false);
      return;
    }
    if (!reader.at_end) {
      const size_t count = snapshot.read(piece, room.arrays());
      room.append_to(&reader.rows, count);
      reader.at_end = count == 0;
      return;
    }
    // It may stay open; then it costs nothing.
    CHECK(snapshot.read(piece, room.arrays()) == 0);
    if (&reader == &publish_) CHECK(snapshot.copied_bytes() == 0);
    if (below(2) == 0) return;
    if (&reader == &checkpoint_) {
      based_ = true;
    } else {
      published_step_ = snapshot.step();
      clocks_show_all_ = true;
    }
    reader.end(true);
    ++kept_;
  }

  const TemporaryDirectory directory_;
  const uint32_t after_steps_;
  const bool admits_late_, memory_;
  std::mt19937_64 random_;
  std::unique_ptr<Table> table_;
  Model model_;
  Reader checkpoint_, publish_;
  bool based_ = false;  // a snapshot for checkpoints was kept
  // Of the last kept snapshot for publishing, and whether clocks and tombstones show what changed
  // since.
  uint32_t published_step_ = 0;
  bool clocks_show_all_ = false;
  int kept_ = 0, lost_ = 0;
};

// Steps of one thread: a table's rows after each of them follow from its number.
class Trainer {
 public:
  Trainer(Table& table, uint32_t after_steps) : table_(table), after_steps_(after_steps) {}
  ~Trainer() { stop(); }
  void start() {
    thread_ = std::thread([this] {
      while (!stop_) step();
    });
  }
  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  void step() { train(table_, keys_of(table_.step() + 1), 1.0f, ManyThreads(2).executor()); }
  // The rows at each of these steps, without those that no commit has updated yet.
  void check(const std::map<uint32_t, std::vector<Model>>& stored) const {
    Model model;
    uint32_t step = 0;
    for (const auto& [at, models] : stored) {
      for (; step < at; ++step) train_model(model, keys_of(step + 1), step + 1, after_steps_);
      for (Model read : models) {
        for (auto row = read.begin(); row != read.end();) {
          const bool is_new = row->second.clock == at + 1;
          if (is_new) CHECK(row->second.weight == 0.0f);
          row = is_new ? read.erase(row) : std::next(row);
        }
        REQUIRE(read == model);
      }
    }
  }

 private:
  static Keys keys_of(uint32_t step) {
    std::mt19937_64 random(step);
    Keys keys(40);
    for (int64_t& key : keys) key = static_cast<int64_t>(random() % 600 + step / 4);
    return keys;
  }

  Table& table_;
  const uint32_t after_steps_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
};

// Opens, reads and ends snapshots of one kind, in a thread of its own.
std::map<uint32_t, std::vector<Model>> follow(Table& table, bool publishes, int rounds,
                                              uint32_t seed) {
  std::mt19937_64 random(seed);
  std::map<uint32_t, std::vector<Model>> result;
  Model stored;
  bool based = publishes;
  for (int kept = 0; kept < rounds;) {
    const bool tiny = publishes && random() % 3 == 0;
    const auto snapshot = table.open_snapshot(
        publishes ? Since::kPublish
        : based   ? Since::kCheckpoint
                  : Since::kAll,
        tiny ? std::make_shared<SnapshotBudget>(SnapshotBudget::WhenSpent::kLose, 4000) : nullptr);
    Rows rows;
    const size_t piece = 1 + random() % 30;
    RowRoom room(table, piece);
    try {
      room.append_to(&rows, snapshot->read(piece, room.arrays()));
      // Mostly, rows change before they are read.
      const uint32_t step = table.step() + random() % 3;
      while (table.step() < step) std::this_thread::yield();
      const Rows rest = read_all(table, *snapshot, piece);
      rows.insert(rows.end(), rest.begin(), rest.end());
    } catch (const Error& error) {
      REQUIRE(tiny);
      REQUIRE(error.code() == Code::kFailedPrecondition);
      CHECK(snapshot->lost());
      continue;
    }
    if (random() % 3 == 0) continue;  // not kept
    if (!based) stored.clear();
    for (const int64_t key : snapshot->removed()) stored.erase(key);
    for (const auto& [key, row] : model_of(rows)) stored[key] = row;
    // Changes since do not concern it any more.
    const uint32_t step = table.step() + random() % 3;
    while (table.step() < step) std::this_thread::yield();
    if (publishes) CHECK(snapshot->copied_bytes() == 0);
    snapshot->close(true);
    result[snapshot->step()].push_back(stored);
    based = true;
    ++kept;
  }
  return result;
}

}  // namespace

TEST_CASE("two snapshots: any order of changes, reads and ends misses no change") {
  int lost = 0;
  for (uint32_t seed = 1; seed <= (kSanitized ? 12u : kLess ? 36u : 1500u); ++seed) {
    CAPTURE(seed);
    const auto tier = static_cast<Tier>(seed % 3);
    const uint32_t after_steps = seed % 2 == 0 ? 9 : 0;
    Session session(tier, after_steps, tier == Tier::kMemory && seed % 4 == 0, seed);
    session.run(1200);
    lost += session.lost();
  }
  CHECK(lost > 0);
}

TEST_CASE("two snapshots: each is whole while threads read both and another one trains") {
  for (const Tier tier : {Tier::kMemory, Tier::kCache, Tier::kDisk}) {
    for (const uint32_t after_steps : {0u, 25u}) {
      CAPTURE(static_cast<int>(tier));
      CAPTURE(after_steps);
      const TemporaryDirectory directory;
      Table table("t", options_of(tier, directory, after_steps), 2, false);
      table.begin_publishing(0);
      Trainer trainer(table, after_steps);
      for (int i = 0; i < 30; ++i) trainer.step();
      trainer.start();
      std::map<uint32_t, std::vector<Model>> checkpoints;
      std::thread reader([&] { checkpoints = follow(table, false, kLess ? 10 : 200, 1); });
      const auto published = follow(table, true, kLess ? 10 : 200, 2);
      reader.join();
      trainer.stop();
      trainer.check(checkpoints);
      trainer.check(published);
      CHECK(published.size() > 5);
    }
  }
}

TEST_CASE("two snapshots: a key that comes and goes takes no more memory each time") {
  Table table("t", plain_options(2), 1, false);
  table.begin_publishing(0);
  train(table, {1, 2}, 1.0f);
  const int64_t key = 1;
  for (int i = 0; i < 10000; ++i) {
    CHECK(table.remove_rows(&key, 1) == 1);
    train(table, {1}, 1.0f);
  }
  CHECK(table.marked_rows() < 20);
  const auto snapshot = table.open_snapshot(Since::kPublish);
  CHECK(read_all(table, *snapshot).size() == 2);
  CHECK(snapshot->removed().empty());
}

TEST_CASE("two snapshots: one that is read to its end keeps nothing, and lets a later one open") {
  const TemporaryDirectory directory;
  for (const Tier tier : {Tier::kMemory, Tier::kDisk}) {
    CAPTURE(static_cast<int>(tier));
    Table table("t", options_of(tier, directory, 0), 1, false);
    table.begin_publishing(0);
    Keys keys(300);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
    train(table, keys, 1.0f);
    const auto publish = table.open_snapshot(Since::kPublish);
    CHECK(read_all(table, *publish).size() == 300);
    const auto checkpoint = table.open_snapshot(Since::kAll);
    train(table, keys, 1.0f);
    // Rows are written back, then a step measures the copies.
    for (int i = 0; i < 3; ++i) look_up(table, {1000}, true);
    CHECK(checkpoint->copied_bytes() > 0);
    CHECK(publish->copied_bytes() == 0);
    CHECK(read_all(table, *checkpoint).size() == 300);
    checkpoint->close(true);
    // Nothing holds old lines any more, but the snapshot is open.
    if (tier == Tier::kDisk) table.shape().log->clear();
    CHECK(error_code([&] { table.clear(); }) == Code::kFailedPrecondition);
    publish->close(true);
    table.clear();
  }
}

}  // namespace hotrow

#include "request_log/record_writer.h"

#include <algorithm>
#include <string_view>
#include <thread>

#include "request_log/metrics.h"
#include "wire/tf_record.h"

namespace hotrow_server {
namespace {

// How long the writer collects records after the first: waking a thread for each one costs requests
// time.
constexpr auto kGather = std::chrono::milliseconds(20);
// The interval between checks for files without users.
constexpr auto kWakeEvery = std::chrono::seconds(1);
// Records go to a file in pieces of at most this many bytes, except for longer records.
constexpr int64_t kPiece = 1 << 20;

using Models = std::map<std::string_view, int64_t>;

void count(const Models& models, bool written) {
  for (const auto& [model, records] : models) {
    if (written) {
      count_logged(model, records);
    } else {
      count_dropped(model, Dropped::kNotWritten, records);
    }
  }
}

// Records of one file, in pieces of several records: each piece is one system call.
class Pieces {
 public:
  Pieces(LogFile* file, const LogFileLimits& limits)
      : file_(file), limits_(limits), most_(std::min<int64_t>(kPiece, limits.bytes)) {}

  void add(RecordWriter::Record* record) {
    seal_record(&record->bytes);
    const auto bytes = static_cast<int64_t>(record->bytes.size());
    if (static_cast<int64_t>(piece_.size()) + bytes > most_) write();
    if (bytes > most_) {
      count({{record->model, 1}}, file_->append(record->bytes, 1, limits_));
      return;
    }
    piece_ += record->bytes;
    ++models_[record->model];
    ++records_;
  }

  void write() {
    if (records_ == 0) return;
    count(models_, file_->append(piece_, records_, limits_));
    piece_.clear();
    models_.clear();
    records_ = 0;
  }

 private:
  LogFile* const file_;
  const LogFileLimits limits_;
  const int64_t most_;
  std::string piece_;
  Models models_;
  int64_t records_ = 0;
};

}  // namespace

void RecordWriter::set_limits(const Limits& limits) {
  most_bytes_ = limits.queue_bytes;
  const std::lock_guard lock(mutex_);
  limits_ = limits.file;
}

std::shared_ptr<LogFile> RecordWriter::file(const std::string& prefix) {
  const std::lock_guard lock(mutex_);
  if (!started_) std::thread([this] { work(); }).detach();
  started_ = true;
  std::shared_ptr<LogFile>& file = files_[prefix];
  if (file == nullptr) file = std::make_shared<LogFile>(prefix);
  wake_.notify_one();
  return file;
}

bool RecordWriter::reserve(size_t bytes) {
  const auto more = static_cast<int64_t>(bytes);
  if (bytes_.fetch_add(more) + more <= most_bytes_.load()) return true;
  release(bytes);
  return false;
}

void RecordWriter::add(Record record) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(record));
  if (queue_.size() == 1) wake_.notify_one();
}

void RecordWriter::flush(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  ++hurries_;
  wake_.notify_one();
  written_.wait_for(lock, most, [this] { return queue_.empty() && !writing_; });
  --hurries_;
}

void RecordWriter::work() {
  for (;;) {
    Records records;
    std::vector<std::shared_ptr<LogFile>> unused;  // closed outside of the lock
    LogFileLimits limits;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return !files_.empty(); });
      if (wake_.wait_for(lock, kWakeEvery, [this] { return !queue_.empty(); })) {
        wake_.wait_for(lock, kGather, [this] { return hurries_ > 0; });
      }
      records.swap(queue_);
      writing_ = true;
      limits = limits_;
      unused = take_unused_files();
    }
    write(&records, limits);
    for (const Record& record : records) release(record.bytes.size());
    const std::lock_guard lock(mutex_);
    writing_ = false;
    written_.notify_all();
  }
}

std::vector<std::shared_ptr<LogFile>> RecordWriter::take_unused_files() {
  std::vector<std::shared_ptr<LogFile>> unused;
  for (auto file = files_.begin(); file != files_.end();) {
    // Other users get the file from this map, under the lock.
    if (file->second.use_count() == 1) {
      unused.push_back(std::move(file->second));
      file = files_.erase(file);
    } else {
      ++file;
    }
  }
  return unused;
}

void RecordWriter::write(Records* records, const LogFileLimits& limits) {
  std::map<LogFile*, Pieces> files;
  for (Record& record : *records) {
    files.try_emplace(record.file.get(), record.file.get(), limits).first->second.add(&record);
  }
  for (auto& [file, pieces] : files) pieces.write();
}

}  // namespace hotrow_server

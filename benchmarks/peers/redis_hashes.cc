// The layouts in Redis of two other systems, as they write, read and update rows: hashes whose
// fields are raw keys and whose values are raw float32 rows.
//
//     tfra   TensorFlow Recommenders-Addons on one server: one hash a table, `model:table`. Writes
//            and updates are HMSET of up to 1,024 rows, a lookup is one HMGET.
//     hps    NVIDIA's Hierarchical Parameter Server: a hash a partition, 8 of them,
//            `hps_et{hps_et.model.table/p<i>}v`, by a hash of the key. Writes are pipelines of
//            HSET, a lookup is an HMGET a partition, here sent together over one connection.
//
//     redis_hashes write  LAYOUT PORT ROWS DIM
//     redis_hashes read   LAYOUT PORT ROWS DIM KEYS SECONDS
//     redis_hashes update LAYOUT PORT ROWS DIM ROWS_A_SECOND SECONDS
//
// Key i is mix64(i); the first 8 bytes of a row are its key, which is checked. One thread, one
// connection, hiredis. Prints JSON.
#include <hiredis/hiredis.h>
#include <sys/time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/base/hash.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kWriteRows = 65536;  // in flight at a time
constexpr size_t kHmsetRows = 1024;
constexpr int kUpdatesASecond = 10;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "redis_hashes: %s\n", why.c_str());
  std::exit(1);
}

void add_part(std::string* out, const void* data, size_t bytes) {
  *out += "$" + std::to_string(bytes) + "\r\n";
  out->append(static_cast<const char*>(data), bytes);
  *out += "\r\n";
}

class Hashes {
 public:
  Hashes(const std::string& layout, int port, size_t dim)
      : per_row_(layout == "hps"), bytes_(4 * dim), row_(bytes_, '\1') {
    if (layout == "tfra") {
      names_ = {"model:table"};
    } else if (layout == "hps") {
      for (int i = 0; i < 8; ++i) {
        names_.push_back("hps_et{hps_et.model.table/p" + std::to_string(i) + "}v");
      }
    } else {
      die("no layout " + layout);
    }
    connection_ = redisConnect("127.0.0.1", port);
    if (connection_ == nullptr || connection_->err != 0) die("no connection");
    timeval patience = {30, 0};
    redisSetTimeout(connection_, patience);
    fields_.resize(names_.size());
  }
  ~Hashes() { redisFree(connection_); }

  void write(const std::vector<uint64_t>& keys) {
    split(keys);
    size_t answers = 0;
    for (size_t p = 0; p < names_.size(); ++p) {
      const size_t most = per_row_ ? 1 : kHmsetRows;
      for (size_t first = 0; first < fields_[p].size(); first += most) {
        const size_t last = std::min(first + most, fields_[p].size());
        command(per_row_ ? "HSET" : "HMSET", names_[p], 2 * (last - first));
        for (size_t i = first; i < last; ++i) {
          const uint64_t key = keys[fields_[p][i]];
          std::memcpy(&row_[0], &key, std::min<size_t>(8, bytes_));
          add_part(&request_, &key, 8);
          add_part(&request_, row_.data(), bytes_);
        }
        ++answers;
      }
    }
    send();
    for (; answers > 0; --answers) freeReplyObject(answer());
  }

  // rows: (keys, bytes).
  void read(const std::vector<uint64_t>& keys, std::vector<char>* rows) {
    split(keys);
    for (size_t p = 0; p < names_.size(); ++p) {
      if (fields_[p].empty()) continue;
      command("HMGET", names_[p], fields_[p].size());
      for (const size_t i : fields_[p]) add_part(&request_, &keys[i], 8);
    }
    send();
    rows->resize(keys.size() * bytes_);
    for (size_t p = 0; p < names_.size(); ++p) {
      if (fields_[p].empty()) continue;
      redisReply* found = answer();
      for (size_t i = 0; i < fields_[p].size(); ++i) {
        const redisReply* value = found->element[i];
        const uint64_t key = keys[fields_[p][i]];
        if (value->type != REDIS_REPLY_STRING || value->len != bytes_ ||
            std::memcmp(value->str, &key, std::min<size_t>(8, bytes_)) != 0) {
          die("a wrong row");
        }
        std::memcpy(rows->data() + fields_[p][i] * bytes_, value->str, bytes_);
      }
      freeReplyObject(found);
    }
  }

 private:
  void split(const std::vector<uint64_t>& keys) {
    for (auto& part : fields_) part.clear();
    for (size_t i = 0; i < keys.size(); ++i) {
      fields_[hotrow::mix64(keys[i]) % names_.size()].push_back(i);
    }
  }
  void command(const char* name, const std::string& key, size_t more) {
    request_ += "*" + std::to_string(2 + more) + "\r\n";
    add_part(&request_, name, std::strlen(name));
    add_part(&request_, key.data(), key.size());
  }
  void send() {
    if (redisAppendFormattedCommand(connection_, request_.data(), request_.size()) != REDIS_OK) {
      die("cannot send");
    }
    request_.clear();
  }
  redisReply* answer() {
    void* reply = nullptr;
    if (redisGetReply(connection_, &reply) != REDIS_OK) die("the connection broke");
    auto* found = static_cast<redisReply*>(reply);
    if (found->type == REDIS_REPLY_ERROR) die(found->str);
    return found;
  }

  bool per_row_;
  size_t bytes_;
  std::string row_;
  std::vector<std::string> names_;
  std::vector<std::vector<size_t>> fields_;
  redisContext* connection_ = nullptr;
  std::string request_;
};

std::vector<uint64_t> random_keys(std::mt19937_64* random, uint64_t rows, size_t count) {
  std::vector<uint64_t> keys(count);
  for (auto& key : keys) key = hotrow::mix64((*random)() % rows);
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

void write(Hashes* hashes, uint64_t rows) {
  std::vector<uint64_t> keys;
  const auto begin = Clock::now();
  for (uint64_t first = 0; first < rows; first += kWriteRows) {
    keys.clear();
    for (uint64_t i = first; i < std::min(rows, first + kWriteRows); ++i) {
      keys.push_back(hotrow::mix64(i));
    }
    hashes->write(keys);
  }
  std::printf("{\"rows_a_second\": %.0f}\n", static_cast<double>(rows) / seconds_since(begin));
}

void read(Hashes* hashes, uint64_t rows, size_t count, double seconds) {
  std::mt19937_64 random(1);
  std::vector<double> micros;
  std::vector<char> found;
  size_t total = 0;
  double busy = 0;
  for (const auto begin = Clock::now(); seconds_since(begin) < seconds;) {
    const auto keys = random_keys(&random, rows, count);
    const auto asked = Clock::now();
    hashes->read(keys, &found);
    const double took = seconds_since(asked);
    micros.push_back(took * 1e6);
    busy += took;
    total += keys.size();
  }
  std::sort(micros.begin(), micros.end());
  std::printf("{\"rows_a_second\": %.0f, \"p50_us\": %.1f, \"p99_us\": %.1f}\n",
              static_cast<double>(total) / busy, micros[micros.size() / 2],
              micros[micros.size() * 99 / 100]);
}

void update(Hashes* hashes, uint64_t rows, size_t a_second, double seconds) {
  std::mt19937_64 random(2);
  const auto begin = Clock::now();
  size_t total = 0;
  for (int turn = 0; turn < seconds * kUpdatesASecond; ++turn) {
    std::this_thread::sleep_until(begin + std::chrono::milliseconds(turn * 1000 / kUpdatesASecond));
    const auto keys = random_keys(&random, rows, a_second / kUpdatesASecond);
    hashes->write(keys);
    total += keys.size();
  }
  std::printf("{\"rows_a_second\": %.0f}\n", static_cast<double>(total) / seconds_since(begin));
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 6) die("usage: see the source");
  const std::string what = arguments[1];
  const uint64_t rows = std::strtoull(arguments[4], nullptr, 10);
  Hashes hashes(arguments[2], std::atoi(arguments[3]), std::strtoull(arguments[5], nullptr, 10));
  const double last = count > 7 ? std::atof(arguments[7]) : 0;
  const size_t number = count > 6 ? std::strtoull(arguments[6], nullptr, 10) : 0;
  if (what == "write") write(&hashes, rows);
  if (what == "read") read(&hashes, rows, number, last);
  if (what == "update") update(&hashes, rows, number, last);
}

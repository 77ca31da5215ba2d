#include "core/comm/mpi_channel.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace hotrow {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFailure = 1;  // a code, then the message
constexpr int kWaits = 2;    // a number and a kind, then what it is for

// Short enough to be sent eagerly, before the receiver posts a receive.
constexpr size_t kLongestText = 2000;
// How long sending a message to other machines may take.
constexpr std::chrono::seconds kToLeave{1};

template <typename Value>
void put(std::string* bytes, Value value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename Value>
Value take(const std::string& bytes, size_t at) {
  Value value{};
  if (at + sizeof(value) <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

}  // namespace

MpiChannel::MpiChannel(const MpiLibrary& mpi, MPI_Comm comm) : mpi_(mpi), comm_(comm) {
  mpi_.check(mpi_.comm_rank(comm_, &rank_), "MPI_Comm_rank");
  mpi_.check(mpi_.comm_size(comm_, &size_), "MPI_Comm_size");
  waiting_.resize(static_cast<size_t>(size_));
}

MpiChannel::~MpiChannel() {
  try {
    if (!failed_ && !mpi_.is_finalized()) {
      look();
      all_left();
      mpi_.comm_free(&comm_);
    }
  } catch (const std::exception&) {
    // No rank is left to receive a message.
  }
  // MPI may read them until the process ends.
  for (auto& sent : sent_) sent.release();
}

void MpiChannel::fail(Code code, const std::string& message) {
  std::lock_guard lock(mutex_);
  if (failed_) return;
  try {
    // Another rank may have failed before. The first probe may only make progress; the second then
    // finds the message.
    int from, tag;
    std::string first;
    for (int looks = 0; looks < 3; ++looks) {
      if (!receive(kFailure, &from, &tag, &first)) continue;
      take_failure(first);
      return;
    }
  } catch (const Error&) {
    // No failure can be received, so this rank's failure is the first.
  }
  code_ = code == Code::kOk ? Code::kInternal : code;
  message_ = of_rank(rank_, message).substr(0, kLongestText);
  std::string bytes;
  put(&bytes, static_cast<int32_t>(code_));
  bytes += message_;
  try {
    send_to_others(kFailure, bytes);
    const auto until = Clock::now() + kToLeave;
    while (!all_left() && Clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  } catch (const std::exception&) {
    // The other ranks find out when this rank does not come.
  }
  failed_.store(true, std::memory_order_release);
}

void MpiChannel::announce(uint64_t number, const RankCall& call) {
  std::string bytes;
  put(&bytes, number);
  put(&bytes, static_cast<int32_t>(call.kind));
  bytes += call.what.substr(0, kLongestText);
  std::lock_guard lock(mutex_);
  if (failed_) throw_failure();
  all_left();
  send_to_others(kWaits, bytes);
}

void MpiChannel::look() {
  for (;;) {
    std::lock_guard lock(mutex_);
    if (failed_) throw_failure();
    int from, tag;
    std::string bytes;
    if (!receive(MPI_ANY_TAG, &from, &tag, &bytes)) return;
    if (tag == kFailure) {
      take_failure(bytes);
      throw_failure();
    }
    Waiting& waiting = waiting_[static_cast<size_t>(from)];
    waiting.number = take<uint64_t>(bytes, 0);
    waiting.call.kind = static_cast<CollectiveKind>(take<int32_t>(bytes, sizeof(uint64_t)));
    waiting.call.what = bytes.substr(std::min(bytes.size(), sizeof(uint64_t) + sizeof(int32_t)));
  }
}

bool MpiChannel::receive(int tag, int* from, int* found_tag, std::string* bytes) {
  int found = 0, count = 0;
  MPI_Message message;
  MPI_Status status;
  mpi_.check(mpi_.improbe(MPI_ANY_SOURCE, tag, comm_, &found, &message, &status), "MPI_Improbe");
  if (!found) return false;
  mpi_.check(mpi_.get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
  bytes->resize(static_cast<size_t>(count));
  mpi_.check(mpi_.mrecv(bytes->data(), count, MPI_BYTE, &message, &status), "MPI_Mrecv");
  *from = status.MPI_SOURCE;
  *found_tag = status.MPI_TAG;
  return true;
}

void MpiChannel::take_failure(const std::string& bytes) {
  code_ = static_cast<Code>(take<int32_t>(bytes, 0));
  message_ = bytes.substr(std::min(bytes.size(), sizeof(int32_t)));
  failed_.store(true, std::memory_order_release);
}

void MpiChannel::throw_failure() { throw Error(code_, message_); }

void MpiChannel::send_to_others(int tag, const std::string& bytes) {
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    auto sent = std::make_unique<Sent>(Sent{bytes, MPI_REQUEST_NULL});
    mpi_.check(mpi_.isend(sent->bytes.data(), static_cast<int>(sent->bytes.size()), MPI_BYTE, r,
                          tag, comm_, &sent->request),
               "MPI_Isend");
    sent_.push_back(std::move(sent));
  }
}

bool MpiChannel::all_left() {
  const auto left = [&](const std::unique_ptr<Sent>& sent) {
    int done = 0;
    mpi_.check(mpi_.test(&sent->request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  };
  sent_.erase(std::remove_if(sent_.begin(), sent_.end(), left), sent_.end());
  return sent_.empty();
}

}  // namespace hotrow

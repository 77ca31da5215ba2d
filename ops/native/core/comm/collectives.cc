#include "core/comm/collectives.h"

#include <condition_variable>
#include <deque>
#include <thread>
#include <unordered_map>
#include <utility>

namespace hotrow {
namespace {

using Done = std::function<void(std::exception_ptr)>;

}  // namespace

struct Collectives::State {
  struct Entry {
    uint64_t ticket;
    std::string what;
    Work work;
  };
  struct Result {
    bool ready = false;
    std::exception_ptr error;
    Done done;  // null: no callback; a thread may be waiting
  };

  explicit State(std::unique_ptr<Communicator> c) : communicator(std::move(c)) {}

  // Runs what is on the queue, until it is stopped.
  void serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stopping || !queue.empty(); });
      if (queue.empty()) return;
      Entry entry = std::move(queue.front());
      queue.pop_front();
      const bool run = !stopping;
      lock.unlock();
      std::exception_ptr error = run ? run_one(entry) : dropped(entry);
      entry.work = nullptr;  // frees what it holds before any waiter is notified
      lock.lock();
      finish(entry.ticket, std::move(error), lock);
    }
  }

  std::exception_ptr run_one(Entry& entry) {
    try {
      communicator->begin(entry.what);
      entry.work(*communicator);
    } catch (const AgreedError&) {
      return std::current_exception();
    } catch (const Error& error) {
      return failed(error.code(), error.what());
    } catch (const std::bad_alloc&) {
      return failed(Code::kResourceExhausted, "out of memory in \"" + entry.what + "\"");
    } catch (const std::exception& error) {
      return failed(Code::kInternal, error.what());
    }
    return nullptr;
  }
  // Reports the failure to all ranks. Returns the first rank's failure: data from a failed rank
  // make this rank's work fail, too.
  std::exception_ptr failed(Code code, const std::string& message) {
    try {
      communicator->fail(code, message);
      communicator->begin("the end");
    } catch (...) {
      return std::current_exception();
    }
    return std::make_exception_ptr(Error(code, message));
  }
  static std::exception_ptr dropped(const Entry& entry) {
    return std::make_exception_ptr(
        Error(Code::kAborted, "\"" + entry.what + "\" did not run: its ranks were closed"));
  }

  // The caller holds the lock; it is released during the callback.
  void finish(uint64_t ticket, std::exception_ptr error, std::unique_lock<std::mutex>& lock) {
    const auto found = results.find(ticket);
    if (found->second.done != nullptr) {
      const Done done = std::move(found->second.done);
      results.erase(found);
      lock.unlock();
      done(std::move(error));
      lock.lock();
      return;
    }
    found->second.ready = true;
    found->second.error = std::move(error);
    finished.notify_all();
  }

  // The caller holds the lock. Fails with InvalidArgument.
  std::unordered_map<uint64_t, Result>::iterator result_of(uint64_t ticket) {
    const auto found = results.find(ticket);
    if (found == results.end() || found->second.done != nullptr) {
      hotrow::fail(Code::kInvalidArgument, "ticket %llu of a collective is unknown, or waited for",
                   static_cast<unsigned long long>(ticket));
    }
    return found;
  }

  const std::unique_ptr<Communicator> communicator;
  DeviceRanks device;  // destroyed before the communicator
  std::mutex mutex;
  std::condition_variable changed, finished;
  std::deque<Entry> queue;
  std::unordered_map<uint64_t, Result> results;  // of tickets that were not waited for
  uint64_t next_ticket = 1;
  bool stopping = false;
  std::thread thread;

  std::mutex counts_mutex;
  std::vector<StageCount> counts;
};

Collectives::Collectives(std::unique_ptr<Communicator> communicator)
    : state_(std::make_shared<State>(std::move(communicator))) {
  state_->thread = std::thread([state = state_] { state->serve(); });
}

Collectives::~Collectives() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.notify_all();
  // The callback of finished work may drop the last reference, in the queue's own thread.
  if (std::this_thread::get_id() == state_->thread.get_id()) {
    state_->thread.detach();
  } else {
    state_->thread.join();
  }
}

int Collectives::rank() const { return state_->communicator->rank(); }
int Collectives::size() const { return state_->communicator->size(); }

uint64_t Collectives::submit(std::string what, Work work) {
  uint64_t ticket;
  {
    std::lock_guard lock(state_->mutex);
    ticket = state_->next_ticket++;
    state_->results.emplace(ticket, State::Result());
    state_->queue.push_back({ticket, std::move(what), std::move(work)});
  }
  state_->changed.notify_one();
  return ticket;
}

void Collectives::wait(uint64_t ticket) {
  if (std::this_thread::get_id() == state_->thread.get_id()) {
    hotrow::fail(Code::kInternal, "work on the queue of collectives waits for other work on it");
  }
  // Keeps the state alive while this thread waits, even if another thread drops the ranks.
  const std::shared_ptr<State> state = state_;
  std::unique_lock lock(state->mutex);
  state->result_of(ticket);
  // Looks the ticket up each time: other entries come and go meanwhile.
  state->finished.wait(lock, [&] { return state->results.at(ticket).ready; });
  const auto found = state->results.find(ticket);
  const std::exception_ptr error = std::move(found->second.error);
  state->results.erase(found);
  lock.unlock();
  if (error != nullptr) std::rethrow_exception(error);
}

void Collectives::when_done(uint64_t ticket, std::function<void(std::exception_ptr)> done) {
  std::exception_ptr error;
  {
    std::lock_guard lock(state_->mutex);
    const auto found = state_->result_of(ticket);
    if (!found->second.ready) {
      found->second.done = std::move(done);
      return;
    }
    error = std::move(found->second.error);
    state_->results.erase(found);
  }
  done(std::move(error));
}

void Collectives::run(std::string what, Work work) {
  wait(submit(std::move(what), std::move(work)));
}

void Collectives::fail(Code code, const std::string& message) {
  state_->communicator->fail(code, message);
}

void Collectives::fail_and_throw(Code code, const std::string& message) {
  fail(code, message);
  run("the end", [](Communicator&) {});
  throw Error(code, message);
}

DeviceRanks& Collectives::device() { return state_->device; }

void Collectives::count(const char* stage, uint64_t bytes_sent, uint64_t bytes_received,
                        uint64_t nanoseconds) {
  std::lock_guard lock(state_->counts_mutex);
  for (StageCount& known : state_->counts) {
    if (known.stage != stage) continue;
    ++known.calls;
    known.bytes_sent += bytes_sent;
    known.bytes_received += bytes_received;
    known.nanoseconds += nanoseconds;
    return;
  }
  state_->counts.push_back({stage, 1, bytes_sent, bytes_received, nanoseconds});
}

std::vector<StageCount> Collectives::counts() const {
  std::lock_guard lock(state_->counts_mutex);
  return state_->counts;
}

namespace {

struct Names {
  std::mutex mutex;
  std::unordered_map<std::string, std::shared_ptr<Collectives>> collectives;
};

Names& names() {
  // Never destroyed: kernels may run while the process ends.
  static Names* all = new Names();
  return *all;
}

}  // namespace

void add_collectives(const std::string& name, std::shared_ptr<Collectives> collectives) {
  std::lock_guard lock(names().mutex);
  if (!names().collectives.emplace(name, std::move(collectives)).second) {
    fail(Code::kAlreadyExists, "ranks %s exist already in this process", name.c_str());
  }
}

std::shared_ptr<Collectives> find_collectives(const std::string& name) {
  std::lock_guard lock(names().mutex);
  const auto found = names().collectives.find(name);
  if (found == names().collectives.end()) {
    fail(Code::kNotFound, "ranks %s are not in this process: they were closed", name.c_str());
  }
  return found->second;
}

void drop_collectives(const std::string& name) {
  // Destroyed outside the lock: work in flight may take long.
  std::shared_ptr<Collectives> last;
  std::lock_guard lock(names().mutex);
  const auto found = names().collectives.find(name);
  if (found == names().collectives.end()) return;
  last = std::move(found->second);
  names().collectives.erase(found);
}

}  // namespace hotrow

// The SIMT machine of simt.h. Not instrumented under TSan (CMakeLists.txt): TSan then treats two
// threads of a block as unordered, except where the machine annotates an order. So it checks
// kernels for races.
#undef _FORTIFY_SOURCE  // its longjmp takes a jump to another stack for an error
#include "tests/simt/simt.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

#if defined(HOTROW_SIMT_TSAN)
#include <sanitizer/tsan_interface.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

thread_local simt::Index threadIdx, blockIdx, blockDim, gridDim;

namespace simt {
namespace {

constexpr unsigned kMostThreads = 1024;
constexpr size_t kStack = 128 << 10;

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "simt: block %u, thread %u: %s\n", blockIdx.x, threadIdx.x, what);
  std::abort();
}

// A meeting of a warp's lanes. Its key is the lowest lane and the number of lanes, since some lanes
// may wait for the whole warp while others meet in a part of it.
struct Meeting {
  unsigned mask = 0, arrived = 0;
  bool ordered = false;
  uint64_t round = 0;
  uint64_t values[2][32];
};

struct Fiber {
  ucontext_t context;
  jmp_buf at;
  bool made = false, left = false;
  void* tsan = nullptr;
};

// The threads of a block, on one host thread.
class Machine {
 public:
  // Between blocks all fibers wait in live(), where no cleanup is needed.
  ~Machine() {
    for (Fiber& fiber : fibers_) {
      if (!fiber.made) continue;
#if defined(__SANITIZE_ADDRESS__)
      __asan_unpoison_memory_region(fiber.context.uc_stack.ss_sp, kStack);
#endif
      munmap(fiber.context.uc_stack.ss_sp, kStack);
#if defined(HOTROW_SIMT_TSAN)
      if (fiber.tsan != nullptr) __tsan_destroy_fiber(fiber.tsan);
#endif
    }
  }

  void run_block(unsigned block, unsigned blocks, unsigned threads,
                 const std::function<void()>& body, uint64_t seed) {
    if (threads == 0 || threads > kMostThreads) die("a block has 1 to 1024 threads");
    body_ = &body;
    random_ = seed * 2 + 1;
    blockIdx.x = block;
    gridDim.x = blocks;
    blockDim.x = threads;
    arrived_ = 0;
    ended_ = ready_count_ = 0;
    for (unsigned t = 0; t < threads; ++t) {
      prepare(&fibers_[t]);
      make_ready(t);
      if (t % 32 != 0) continue;
      for (auto& lane : meetings_[t / 32]) {
        for (Meeting& meeting : lane) meeting.arrived = 0;
      }
    }
    annotate(&main_, true);
    leave(&main_);
    annotate(&ended_, false);
    if (ended_ != threads) die("threads wait for others that ended, or that wait elsewhere");
  }

  const uint64_t* meet(unsigned mask, uint64_t value, bool ordered) {
    const unsigned self = threadIdx.x, lane = self % 32;
    if ((mask >> lane & 1) == 0) die("a lane meets others without being in the mask");
    const int size = 31 - __builtin_clz(static_cast<unsigned>(__builtin_popcount(mask)));
    Meeting& meeting = meetings_[self / 32][__builtin_ctz(mask)][size];
    const bool first = meeting.arrived == 0;
    if (first) {
      meeting.mask = mask;
      meeting.ordered = ordered;
    } else if (meeting.mask != mask || meeting.ordered != ordered) {
      die("lanes meet in different places");
    }
    uint64_t* values = meeting.values[meeting.round % 2];
    values[lane] = value;
    if (ordered) {
      annotate(&meeting, true);
      weak::arrive(values, first);
    }
    meeting.arrived |= 1u << lane;
    if (meeting.arrived == mask) {
      meeting.arrived = 0;
      ++meeting.round;
      for (unsigned rest = mask & ~(1u << lane); rest != 0; rest &= rest - 1) {
        make_ready(self - lane + static_cast<unsigned>(__builtin_ctz(rest)));
      }
      make_ready(self);
    }
    leave(&fibers_[self]);
    if (ordered) {
      annotate(&meeting, false);
      weak::leave(values);
    }
    return values;
  }

  void meet_block() {
    const unsigned self = threadIdx.x;
    const char* const place = &places_[round_ % 2];
    annotate(this, true);
    weak::arrive(place, arrived_ == 0);
    waiting_[arrived_++] = self;
    if (arrived_ == blockDim.x) {
      for (unsigned i = 0; i < arrived_; ++i) make_ready(waiting_[i]);
      arrived_ = 0;
      ++round_;
    }
    leave(&fibers_[self]);
    annotate(this, false);
    weak::leave(place);
  }

  void step_aside() {
    if (random() % 4 != 0) return;
    make_ready(threadIdx.x);
    leave(&fibers_[threadIdx.x]);
  }

 private:
  static void annotate([[maybe_unused]] void* about, [[maybe_unused]] bool before) {
#if defined(HOTROW_SIMT_TSAN)
    before ? __tsan_release(about) : __tsan_acquire(about);
#endif
  }
  uint64_t random() {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return random_ >> 11;
  }
  void make_ready(unsigned thread) { ready_[ready_count_++] = thread; }

  // Switches to any thread that can continue, or back to run_block when there is none. Returns when
  // `from` is chosen again.
  void leave(Fiber* from) {
    Fiber* to = &main_;
    if (ready_count_ > 0) {
      const unsigned at = static_cast<unsigned>(random() % ready_count_);
      threadIdx.x = ready_[at];
      ready_[at] = ready_[--ready_count_];
      to = &fibers_[threadIdx.x];
    }
    jump(from, to);
  }

  static void jump(Fiber* from, Fiber* to) {
    if (from == to) return;
#if defined(HOTROW_SIMT_TSAN)
    if (from->tsan == nullptr) from->tsan = __tsan_get_current_fiber();
    if (to->tsan == nullptr) to->tsan = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(to->tsan, __tsan_switch_to_fiber_no_sync);
    swapcontext(&from->context, &to->context);
#elif defined(__SANITIZE_ADDRESS__)
    swapcontext(&from->context, &to->context);
#else
    // swapcontext calls the kernel for the signal mask each time; once is enough.
    if (_setjmp(from->at) != 0) return;
    from->left = true;
    if (to->left) _longjmp(to->at, 1);
    setcontext(&to->context);
#endif
  }

  // A fiber serves one thread number, block after block.
  static void live();
  void prepare(Fiber* fiber) {
    if (fiber->made) return;
    fiber->made = true;
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = mmap(nullptr, kStack, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fiber->context.uc_stack.ss_sp == MAP_FAILED) die("no memory for a stack");
    fiber->context.uc_stack.ss_size = kStack;
    makecontext(&fiber->context, &Machine::live, 0);
  }

  Fiber main_;
  Fiber fibers_[kMostThreads];
  Meeting meetings_[kMostThreads / 32][32][6];
  unsigned ready_[kMostThreads], waiting_[kMostThreads];
  unsigned ready_count_ = 0, arrived_ = 0, ended_ = 0;
  unsigned round_ = 0;  // of the block's meetings
  char places_[2];      // of this round and the last
  const std::function<void()>* body_ = nullptr;
  uint64_t random_ = 1;
};

Machine& machine() {
  static thread_local const std::unique_ptr<Machine> own(new Machine);
  return *own;
}

void Machine::live() {
  for (;;) {
    Machine& m = machine();
    annotate(&m.main_, false);
    weak::begin_thread();
    (*m.body_)();
    weak::end_thread();
    annotate(&m.ended_, true);
    ++m.ended_;
    m.leave(&m.fibers_[threadIdx.x]);
  }
}

std::atomic<uint64_t> next_seed{1};
std::atomic<size_t> loaded_bytes{0}, stored_bytes{0};

// Blocks that two host threads take one by one.
struct Launch {
  unsigned blocks, threads;
  const std::function<void()>* body;
  uint64_t seed;
  std::atomic<unsigned> next{0};

  void work() {
    for (unsigned i = next++; i < blocks; i = next++) {
      const unsigned block = (seed & 1) != 0 ? blocks - 1 - i : i;
      machine().run_block(block, blocks, threads, *body, seed + block * 0x9e3779b97f4a7c15u);
    }
  }
};

class Helper {
 public:
  Helper() : thread_([this] { serve(); }) {}
  ~Helper() {
    give(nullptr);
    thread_.join();
  }
  void give(Launch* launch) {
    std::lock_guard lock(mutex_);
    launch_ = launch;
    busy_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !busy_; });
  }
  std::mutex taken;

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return busy_; });
      if (launch_ == nullptr) return;
      lock.unlock();
      launch_->work();
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  Launch* launch_ = nullptr;
  bool busy_ = false;
  std::thread thread_;
};

}  // namespace

RowBytes row_bytes() { return {loaded_bytes, stored_bytes}; }
void count_row_bytes(size_t loaded, size_t stored) {
  loaded_bytes.fetch_add(loaded, std::memory_order_relaxed);
  stored_bytes.fetch_add(stored, std::memory_order_relaxed);
}

void set_seed(uint64_t seed) { next_seed = seed; }

void run(unsigned blocks, unsigned threads, const std::function<void()>& body) {
  if (blocks == 0) die("a launch of no blocks");
  weak::begin_launch();
  Launch launch{blocks, threads, &body, next_seed++ * 0x2545f4914f6cdd1du};
  static Helper helper;
  std::unique_lock lock(helper.taken, std::try_to_lock);
  const bool helped = blocks > 1 && lock.owns_lock();
  if (helped) helper.give(&launch);
  launch.work();
  if (helped) helper.wait();
}

const uint64_t* meet(unsigned mask, uint64_t value, bool ordered) {
  return machine().meet(mask, value, ordered);
}
void meet_block() { machine().meet_block(); }
void step_aside() { machine().step_aside(); }

}  // namespace simt

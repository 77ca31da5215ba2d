#include "http/server.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "base/refused.h"

namespace hotrow_server {
namespace {

using std::chrono::milliseconds;

// Answers with verb, target and the length of the body; /later from another thread, /large with a
// megabyte.
class Echo final : public HttpHandler {
 public:
  void answer(HttpRequest* request, HeldBytes*, Done done) override {
    HttpReply reply;
    reply.body = request->verb + " " + request->target + " " + std::to_string(request->body.size());
    if (request->target == "/large") reply.body.assign(1 << 20, 'x');
    if (request->target != "/later") return done(std::move(reply));
    std::thread([done = std::move(done), reply = std::move(reply)]() mutable {
      std::this_thread::sleep_for(milliseconds(20));
      done(std::move(reply));
    }).detach();
  }
};

int free_port() {
  const int probe = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof(address);
  REQUIRE(bind(probe, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  close(probe);
  return ntohs(address.sin_port);
}

// A server on a free port. Its threads run until the process ends, so it is never destroyed.
struct Served {
  explicit Served(int64_t budget_bytes = 50'000) : budget(budget_bytes) {
    server.begin([](Connection::Time) {});
  }
  int port = free_port();
  MemoryBudget budget;
  Echo echo;
  HttpServer server{port, std::nullopt, {30'000, milliseconds(300)}, &budget, &echo};
};

Served& served() {
  static auto* const served = new Served();
  return *served;
}

// One with memory for long heads.
Served& roomy() {
  static auto* const roomy = new Served(10'000'000);
  return *roomy;
}

class Client {
 public:
  explicit Client(int port = served().port) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    const timeval patience{20, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  ~Client() { close(socket_); }

  void send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      text.remove_prefix(static_cast<size_t>(sent));
    }
  }
  // One reply: the code, and the body behind it.
  std::string reply(bool has_body = true) {
    while (said_.find("\r\n\r\n") == std::string::npos) {
      if (!more()) return "closed";
    }
    const size_t head = said_.find("\r\n\r\n") + 4;
    const size_t at = said_.find("Content-Length: ");
    const size_t length = at < head && has_body ? std::stoul(said_.substr(at + 16)) : 0;
    while (said_.size() < head + length) {
      if (!more()) return "cut";
    }
    const std::string reply = said_.substr(9, 3) + " " + said_.substr(head, length);
    last_head_ = said_.substr(0, head);
    said_.erase(0, head + length);
    return reply;
  }
  // Waits for it a little.
  bool has_reply() const {
    pollfd readable{socket_, POLLIN, 0};
    return poll(&readable, 1, 1) > 0;
  }
  bool is_closed() { return said_.empty() && !more(); }
  const std::string& last_head() const { return last_head_; }

 private:
  bool more() {
    char buffer[65536];
    const ssize_t got = recv(socket_, buffer, sizeof(buffer), 0);
    if (got > 0) said_.append(buffer, static_cast<size_t>(got));
    return got > 0;
  }

  const int socket_;
  std::string said_, last_head_;
};

std::string post(const std::string& length, const std::string& more = "") {
  return "POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: " + length + "\r\n" + more + "\r\n";
}

}  // namespace

TEST_CASE("http: requests of a connection are answered in their order") {
  Client client;
  client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n" + post("3") + "abcGET /later HTTP/1.1\r\n");
  CHECK(client.reply() == "200 GET /a 0");
  CHECK(client.reply() == "200 POST /b 3");
  client.send("Host: a\r\n\r\n");
  CHECK(client.reply() == "200 GET /later 0");
  client.send(post("1") + "a\r\nGET /a HTTP/1.1\r\n\r\n\r\n");
  CHECK(client.reply() == "200 POST /b 1");
  CHECK(client.reply() == "200 GET /a 0");
  client.send("\r\n");
  client.send("HEAD /h?x=%20 HTTP/1.1\r\nHost: a\r\n\r\n");
  CHECK(client.reply(false) == "200 ");
  client.send("GET http://a:80/p?q HTTP/1.1\r\nHost: a\r\n\r\nGET HTTP://a HTTP/1.1\r\n\r\n");
  CHECK(client.reply() == "200 GET /p?q 0");
  CHECK(client.reply() == "200 GET / 0");
  client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
  CHECK(client.reply().size() == (1 << 20) + 4);
  client.send("GET /z HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  CHECK(client.reply() == "200 GET /z 0");
  CHECK(client.is_closed());
  CHECK(client.last_head().find("Connection: close") != std::string::npos);
}

TEST_CASE("http: HTTP/1.0 closes unless asked to stay") {
  Client client;
  client.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  CHECK(client.reply() == "200 GET /a 0");
  client.send("GET /b HTTP/1.0\r\n\r\n");
  CHECK(client.reply() == "200 GET /b 0");
  CHECK(client.is_closed());
}

TEST_CASE("http: bodies arrive in any pieces") {
  Client client;
  const std::string body(20'000, 'b');
  client.send(post("20000") + body.substr(0, 10'000));
  std::this_thread::sleep_for(milliseconds(30));
  client.send(body.substr(10'000));
  CHECK(client.reply() == "200 POST /b 20000");
  const std::string head = "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  std::string chunked = head + "4e20\r\n" + body + "\r\n3\r\nabc\r\n0\r\n\r\n";
  client.send(chunked + post("1") + "a");
  CHECK(client.reply() == "200 POST /c 20003");
  CHECK(client.reply() == "200 POST /b 1");
  for (const char byte : head + "3\r\nabc\r\n0\r\n\r\n") {
    client.send({&byte, 1});
    std::this_thread::sleep_for(milliseconds(1));
  }
  CHECK(client.reply() == "200 POST /c 3");
  client.send(post("5", "Expect: 100-continue\r\n"));
  CHECK(client.reply() == "100 ");
  client.send("abcde");
  CHECK(client.reply() == "200 POST /b 5");
}

TEST_CASE("http: what is no HTTP is refused") {
  for (const std::string bad :
       {"no HTTP at all\r\n\r\n", "GET /a HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        "POST /a HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "POST /a HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\nGET /b HTTP/1.1\r\n\r\n",
        "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "POST /a HTTP/1.1\r\nTransfer-Encoding: gzip\r\nContent-Length: 1\r\n\r\na",
        "POST /a HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "GET /a HTTP/1.1\r\nA\r\n\r\n", "\x16\x03\x01\x02\r\n\r\n"}) {
    CAPTURE(bad);
    Client client;
    client.send(bad);
    CHECK(client.reply() == "400 Invalid HTTP request received.");
    CHECK(client.is_closed());
  }
  Client client(roomy().port);
  client.send("GET /a HTTP/1.1\r\nA: " + std::string(70'000, 'a'));
  CHECK(client.reply().substr(0, 4) == "431 ");
  CHECK(client.is_closed());
}

TEST_CASE("http: a head is bounded in any pieces, as are extensions of chunks and trailers") {
  // Sends lines one by one, so that each ends a piece, until the server replies.
  const auto reply_to = [](const std::string& head, const std::string& line) {
    Client client(roomy().port);
    client.send(head);
    for (int i = 0; i < 200 && !client.has_reply(); ++i) client.send(line);
    return client.reply().substr(0, 4);
  };
  const std::string line(1022, 'a');
  CHECK(reply_to("GET /a HTTP/1.1\r\n", "A: " + line.substr(3) + "\r\n") == "431 ");
  const std::string head = "POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  CHECK(reply_to(head + "1;a=", line) == "400 ");
  CHECK(reply_to(head + "0\r\n", "A: " + line.substr(3) + "\r\n") == "400 ");
}

TEST_CASE("http: limits of length and memory hold before a body is read") {
  Client client;
  client.send(post("30001"));
  CHECK(client.reply().find("413 { \"error\": \"The request body is longer than 30000 bytes") == 0);
  CHECK(client.is_closed());
  Client chunks;
  chunks.send("POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n7531\r\n" +
              std::string(30'001, 'a'));
  CHECK(chunks.reply().substr(0, 4) == "413 ");
  Client first, second, announced;
  announced.send(post("30000"));  // nothing comes
  first.send(post("30000") + std::string(25'000, 'a'));
  while (served().budget.has_room(25'001)) std::this_thread::sleep_for(milliseconds(1));
  second.send(post("26000"));
  CHECK(second.reply().substr(0, 4) == "503 ");
  Client third;
  third.send(post("20000") + std::string(20'000, 'a'));
  CHECK(third.reply() == "200 POST /b 20000");
  first.send(std::string(5'000, 'a'));
  CHECK(first.reply() == "200 POST /b 30000");
  while (!served().budget.has_room(50'000)) std::this_thread::sleep_for(milliseconds(1));
}

TEST_CASE("http: long heads are counted") {
  Client client, longer;
  client.send("GET /a HTTP/1.1\r\nA: " + std::string(8'000, 'a') + "\r\n\r\n");
  CHECK(client.reply() == "200 GET /a 0");
  longer.send("GET /a HTTP/1.1\r\nA: " + std::string(20'000, 'a') + "\r\n\r\n");
  CHECK(longer.reply().substr(0, 4) == "503 ");
  CHECK(longer.is_closed());
  while (!served().budget.has_room(50'000)) std::this_thread::sleep_for(milliseconds(1));
}

TEST_CASE("http: what does not arrive in time is given up") {
  Client head, body, silent, idle;
  idle.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
  CHECK(idle.reply() == "200 GET /a 0");
  head.send("GET /a HTTP/1.1\r\n");
  body.send(post("900"));
  bool ended = false;
  for (int i = 0; i < 100 && !ended; ++i) {
    body.send("a");
    std::this_thread::sleep_for(milliseconds(20));
    ended = served().server.open() == 0;
  }
  CHECK(body.reply() == "408 { \"error\": \"The request body did not come in time\" }");
  CHECK(head.reply() == "408 ");
  CHECK(silent.is_closed());
  // Between two requests there is more time.
  idle.send("GET /b HTTP/1.1\r\nHost: a\r\n\r\n");
  CHECK(idle.reply() == "200 GET /b 0");
}

TEST_CASE("http: broken connections leave nothing behind") {
  const std::string parts[] = {"",
                               "GET /a",
                               post("100"),
                               post("100") + "abc",
                               "GET /later HTTP/1.1\r\n\r\n",
                               "GET /large HTTP/1.1\r\n\r\n"};
  for (int turn = 0; turn < 20; ++turn) {
    for (const std::string& part : parts) {
      Client client;
      client.send(part);
    }
  }
  Client client;
  client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
  CHECK(client.reply() == "200 GET /a 0");
  while (served().server.open() > 0 || !served().budget.has_room(50'000)) {
    std::this_thread::sleep_for(milliseconds(1));
  }
}

TEST_CASE("http: many connections at a time") {
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&good] {
      for (int turn = 0; turn < 50; ++turn) {
        Client client;
        for (int i = 0; i < 10; ++i) {
          client.send(i % 2 == 0 ? post("2") + "ab" : "GET /later HTTP/1.1\r\n\r\n");
          good += client.reply() == (i % 2 == 0 ? "200 POST /b 2" : "200 GET /later 0");
          if (i == 3) break;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(good == 8 * 50 * 4);
}

TEST_CASE("http: connections leave descriptors to the rest of the process") {
  rlimit files{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &files) == 0);
  rlimit few = files;
  few.rlim_cur = 100;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  auto* const own = new Served();
  REQUIRE(setrlimit(RLIMIT_NOFILE, &files) == 0);
  std::deque<Client> clients;
  const auto ask = [&] {
    clients.emplace_back(own->port);
    clients.back().send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
  };
  for (int i = 0; i < 75; ++i) {
    ask();
    CHECK(clients.back().reply() == "200 GET /a 0");
  }
  ask();
  std::this_thread::sleep_for(milliseconds(150));
  CHECK_FALSE(clients.back().has_reply());
  clients.pop_front();
  CHECK(clients.back().reply() == "200 GET /a 0");
}

TEST_CASE("http: an end lets requests finish") {
  auto* const own = new Served();
  Client idle(own->port), busy(own->port);
  idle.send("GET /a HTTP/1.1\r\n\r\n");
  CHECK(idle.reply() == "200 GET /a 0");
  while (own->server.open() > 0) std::this_thread::yield();
  busy.send("GET /later HTTP/1.1\r\n\r\n");
  while (own->server.open() == 0) std::this_thread::yield();
  own->server.end();
  CHECK(idle.is_closed());
  CHECK(busy.reply() == "200 GET /later 0");
  CHECK(busy.last_head().find("Connection: close") != std::string::npos);
  CHECK(busy.is_closed());
  while (own->server.open() > 0) std::this_thread::yield();
}

TEST_CASE("http: a port in use is refused") {
  MemoryBudget budget(0);
  Echo echo;
  CHECK_THROWS_AS(HttpServer(served().port, std::nullopt, {1, milliseconds(1)}, &budget, &echo),
                  Refused);
}

}  // namespace hotrow_server

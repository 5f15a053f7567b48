// loom doctor as a script sees it: the checks, what a failed one says, and what the members found.
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "app/cli_test_fixture.h"
#include "net/control_socket.h"
#include "net/reactor.h"
#include "net/socket.h"

namespace loom::app {
namespace {

using DoctorTest = Cli;

std::string TextAt(const json::Value& value, const char* key) {
  const json::Value* found = value.Find(key);
  return found != nullptr && found->AsString() != nullptr ? *found->AsString() : "";
}

json::Value RowOf(const std::string& out, const std::string& name) {
  const auto first = json::Parse(out.substr(0, out.find('\n')));
  EXPECT_TRUE(first.ok()) << out;
  const json::Value* checks = first ? first->Find("checks") : nullptr;
  for (const json::Value& row : checks != nullptr ? *checks->AsArray() : json::Array{}) {
    if (*row.Find("name")->AsString() == name) return row;
  }
  ADD_FAILURE() << "no check " << name << " in " << out;
  return {};
}

TEST_F(DoctorTest, Checks) {
  const Ran ran = Run("doctor --dir " + dir_.string() + " --json");
  const json::Value first = Parsed(ran.out.substr(0, ran.out.find('\n')));
  const json::Array& checks = *first.Find("checks")->AsArray();
  std::vector<std::string> names;
  bool failed = false;
  for (const json::Value& check : checks) {
    names.push_back(TextAt(check, "name"));
    const std::string result = TextAt(check, "result");
    failed = failed || result == "fail";
    EXPECT_TRUE(result == "pass" || !TextAt(check, "next").empty()) << names.back();
  }
  EXPECT_EQ(names, (std::vector<std::string>{"versions", "libtorch", "blas", "cpu", "gpu", "memory",
                                             "disk", "disk_speed", "fsync", "files", "owner_key",
                                             "clock", "loopback", "ipv6", "port", "dial_back"}));
  EXPECT_EQ(*first.Find("ok")->AsBool(), !failed);
  EXPECT_EQ(ran.code, failed ? 3 : 0) << ran.out;
  EXPECT_EQ(Run("doctor --dir " + Path("not/yet/there")).code, ran.code)
      << "where it would be made";
}

TEST_F(DoctorTest, NamesATakenPort) {
  const auto taken = net::OpenListener(*net::SocketAddress::Numeric({"127.0.0.1", 0}), false);
  ASSERT_TRUE(taken.ok());
  const std::string port = std::to_string(taken->port);
  fs::create_directories(Path("peer/keys"));
  Write("peer/keys/port", port);
  Write("peer/keys/listen", "127.0.0.1:0");
  const std::string row = json::Dump(RowOf(Run("doctor --json --dir " + Path("peer")).out, "port"));
  ::close(taken->fd);
  EXPECT_NE(row.find("\"fail\""), std::string::npos) << row;
  EXPECT_NE(row.find(port + ", the port of this folder's peer, is taken"), std::string::npos)
      << row;
  EXPECT_NE(row.find("ss -ltnp"), std::string::npos) << row;
}

TEST_F(DoctorTest, TellsWhatTheMembersFound) {
  const std::string dir = Path("peer");
  fs::create_directories(dir + "/keys");
  const auto answer = [](const std::string& ports, const std::string& members) {
    return R"({"ok":true,"listen":"*:4711","ports":[)" + ports +
           R"(],"announce":"attic.example:4711","members":[)" + members + "]}";
  };
  const auto member = [](const std::string& dialled) {
    return R"({"peer":"aaaaaaaaaaaa","seen_as":"198.51.100.7:5000","clock_offset_s":300.0,)"
           R"("dialled":[{"address":"attic.example:4711",)" +
           dialled + "}]}";
  };
  const std::vector<std::pair<std::string, std::string>> said{
      {answer("", ""), "the peer only dials out"},
      {answer("4711", ""), "no other peer is connected"},
      {answer("4711", member(R"("result":"reached")")), "reached at attic.example:4711"},
      {answer("4711", member(R"("result":"failed","step":"pin","failure":"wrong peer key")")),
       "leads to another program or peer"},
      {answer("4711",
              member(R"("result":"failed","step":"resolve","failure":"name look-up failed")")),
       "let the name lead to 198.51.100.7"},
      {R"({"ok":true,"listen":"*:4711","ports":[4711],"announce":"10.0.0.9:4711","members":[{"peer":)"
       R"("aaaaaaaaaaaa","seen_as":"198.51.100.7:5000","clock_offset_s":300.0,"dialled":[{"address":)"
       R"("10.0.0.9:4711","result":"not_tried","error":"private"}]}]})",
       "the announced 10.0.0.9:4711 is a private address"}};
  net::Reactor reactor;
  std::size_t asked = 0;
  auto server = net::ControlServer::Listen(
      reactor, dir + "/control.sock",
      [&](const std::string& request, const net::ControlServer::Reply& reply) {
        EXPECT_NE(request.find("checkup"), std::string::npos) << request;
        reply(said[std::min(asked++, said.size() - 1)].first);
      });
  ASSERT_TRUE(server.ok()) << server.error().ToString();
  std::thread running([&] { reactor.Run(); });
  std::string clock;
  for (const auto& [told, expected] : said) {
    const Ran ran = Run("doctor --json --dir " + dir);
    const std::string row = json::Dump(RowOf(ran.out, "dial_back"));
    EXPECT_NE(row.find(expected), std::string::npos) << row;
    clock = json::Dump(RowOf(ran.out, "clock"));
  }
  reactor.Post([&] { reactor.Stop(); });
  running.join();
  EXPECT_NE(clock.find("300 s behind that of aaaaaaaa"), std::string::npos) << clock;
}

}  // namespace
}  // namespace loom::app

// Wrong ways to start and to join, as people find them. Each ends by itself with an exit code of
// its own, names the thing and the next step, and changes no byte that matters.
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>

#include "crypto/hash.h"
#include "net/socket.h"
#include "tests/e2e/wrong_ways.h"

namespace loom::e2e {
namespace {

namespace fs = std::filesystem;
using WrongStarts = WrongWaysTest;

TEST_F(WrongStarts, OfStarting) {
  const std::string run = Path("run.toml");
  const std::string dir = Path("peer");
  const auto host = [&](std::vector<std::string> more, const std::string& toml = "") {
    std::vector<std::string> all{"host", toml.empty() ? run : toml, "--dir", dir};
    if (std::ranges::find(more, "--listen") == more.end())
      more.insert(more.end(), {"--listen", "127.0.0.1:0"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  Write("empty.txt", "");
  Write("tiny.txt", "tiny");
  Write("a-file", "x");
  fs::create_symlink(Path("nowhere-mounted"), Path("a-link"));
  const net::Listener taken =
      *net::OpenListener(*net::SocketAddress::Numeric({"127.0.0.1", 0}), false);
  const std::string busy = fmt::format("127.0.0.1:{}", taken.port);
  const std::string locked = Path("locked.pem");
  const bool has_locked =
      std::system(("openssl genpkey -algorithm ed25519 -aes256 -pass pass:right -out " + locked +
                   " 2>/dev/null")
                      .c_str()) == 0;
  std::vector<Way> ways{
      {"no such file", host({}, Path("none.toml")), 4, {"none.toml"}},
      {"a key that there is not",
       host({}, Toml("key.toml", "layers = 1", "layer = 1")),
       3,
       {"key.toml:3", "layer", "did you mean layers?"}},
      {"a value of another kind",
       host({}, Toml("kind.toml", "layers = 1", "layers = \"two\"")),
       3,
       {"kind.toml:3", "layers"}},
      {"a value out of range",
       host({}, Toml("range.toml", "layers = 1", "layers = 100000")),
       3,
       {"range.toml:3", "100000"}},
      {"values that do not go together",
       host({}, Toml("odd.toml", "kv_heads = 2", "kv_heads = 3")),
       3,
       {"kv_heads", "3"}},
      {"no TOML", host({}, Toml("text.toml", "[model]", "model {")), 3, {"text.toml:1"}},
      {"no corpus", host({}, Toml("gone.toml", "story.txt", "gone.txt")), 4, {"gone.txt"}},
      {"an empty corpus", host({}, Toml("empty.toml", "story.txt", "empty.txt")), 3, {"empty.txt"}},
      {"a corpus too small", host({}, Toml("small.toml", "story.txt", "tiny.txt")), 3, {"token"}},
      {"an address without a port", host({"--listen", "127.0.0.1"}), 3, {"'127.0.0.1'"}},
      {"a port that there is not", host({"--listen", "127.0.0.1:99999"}), 3, {"99999"}},
      {"an address of another machine",
       host({"--listen", "203.0.113.9:4711"}),
       6,
       {"203.0.113.9:4711", "ip address"}},
      {"a port that is taken", host({"--listen", busy}), 11, {busy, "another program"}},
      {"nonsense announced", host({"--announce", "nonsense"}), 3, {"announce", "nonsense"}},
      {"every address announced", host({"--announce", "0.0.0.0:4711"}), 3, {"0.0.0.0:4711"}},
      {"a cap below the least", host({"--max-up", "3"}), 3, {"max_up 3", "16000"}},
      {"an invite for nobody", host({"--invite-uses", "0"}), 3, {"--invite-uses 0", "100000"}},
      {"an invite for ever", host({"--invite-days", "99999"}), 3, {"99999", "3650"}},
      {"an owner who is none", host({"--co-owner", "me"}), 3, {"--co-owner", "'me'", "64"}},
      {"an owner who is nobody",
       host({"--co-owner", std::string(64, '0')}),
       3,
       {"--co-owner", "nobody's key"}},
      {"an owner twice",
       host({"--co-owner", std::string(64, 'a') + "," + std::string(64, 'a')}),
       3,
       {"--co-owner", "twice"}},
      {"an option that there is not", host({"--nonsense"}), 2, {"--nonsense"}},
      {"a kernel path that there is not", host({"--isa", "mmx"}), 3, {"mmx"}},
      {"an owner key that is none",
       host({}),
       3,
       {Path("story.txt")},
       {"LOOM_OWNER_KEY=" + Path("story.txt")}},
      {"a file for a folder",
       {"host", run, "--dir", Path("a-file"), "--listen", "127.0.0.1:0"},
       6,
       {"a-file"}},
      {"a link to a disk that is not mounted",
       {"host", run, "--dir", Path("a-link"), "--listen", "127.0.0.1:0"},
       6,
       {"a-link", "link to", "nowhere-mounted"}},
      {"a place where nothing can be made",
       {"host", run, "--dir", "/proc/nowhere", "--listen", "127.0.0.1:0"},
       6,
       {"/proc/nowhere"}},
      {"a verb that there is not", {"jion"}, 2, {"did you mean loom join?"}},
      {"a batch of nothing", host({}, Toml("zero.toml", "batch = 2", "batch = 0")), 3, {"batch"}},
  };
  if (has_locked) {
    ways.push_back({"an owner key under a password",
                    host({}),
                    3,
                    {locked, "pass-phrase"},
                    {"LOOM_OWNER_KEY=" + locked}});
  }
  Try(ways, {Path("story.txt"), run, Path("a-file"), locked});
  ::close(taken.fd);
  EXPECT_FALSE(fs::exists(dir)) << "a start that failed leaves nothing behind";
  EXPECT_GE(tried_, 29U);
}

TEST_F(WrongStarts, OfPlacesToKeepAPeer) {
  const auto mounted = [&](const std::string& name, const char* size) {
    fs::create_directories(Path(name));
    return ::mount("loom", Path(name).c_str(), "tmpfs", 0, size) == 0;
  };
  if (!mounted("full", "size=64k") || !mounted("fixed", "size=8m")) {
    GTEST_SKIP() << "small file systems cannot be mounted here (it takes root)";
  }
  Write("fixed/notes.txt", "mine");
  Write("full/notes.txt", "mine");
  ASSERT_EQ(::mount("", Path("fixed").c_str(), "", MS_REMOUNT | MS_RDONLY, ""), 0);
  const std::string run = Path("run.toml");
  Try({{"a full disk",
        {"host", run, "--dir", Path("full/peer"), "--listen", "127.0.0.1:0"},
        7,
        {"space"}},
       {"a disk that takes no writes",
        {"host", run, "--dir", Path("fixed/peer"), "--listen", "127.0.0.1:0"},
        6,
        {"fixed/peer", "Read-only"}}},
      {Path("full"), Path("fixed")});
  for (const char* name : {"full", "fixed"}) ::umount2(Path(name).c_str(), MNT_DETACH);
}

/// The token with another version in its head, and a checksum that fits.
std::string OfVersion(const std::string& token, std::uint8_t version) {
  static const std::string kAlphabet = "abcdefghijklmnopqrstuvwxyz234567";
  Bytes bytes;
  std::uint32_t buffer = 0;
  int bits = 0;
  for (const char c : token.substr(5)) {
    buffer = (buffer << 5) | static_cast<std::uint32_t>(kAlphabet.find(c));
    bits += 5;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push_back(static_cast<std::byte>((buffer >> bits) & 255));
  }
  bytes[0] = static_cast<std::byte>(version);
  const Hash check = crypto::Sha256(ByteView(bytes).first(bytes.size() - 4));
  std::copy_n(check.bytes.begin(), 4, bytes.end() - 4);
  std::string out = "loom1";
  buffer = 0;
  bits = 0;
  for (const std::byte b : bytes) {
    buffer = (buffer << 8) | std::to_integer<std::uint32_t>(b);
    for (bits += 8; bits >= 5; bits -= 5) out += kAlphabet[(buffer >> (bits - 5)) & 31];
    buffer &= 255;
  }
  if (bits > 0) out += kAlphabet[(buffer << (5 - bits)) & 31];
  return out;
}

TEST_F(WrongStarts, OfJoining) {
  const std::string dir = Path("peer");
  const std::string good = swarm::EncodeInvite(Stranger(3600));
  std::string typo = good;
  typo[typo.size() / 2] = typo[typo.size() / 2] == 'a' ? 'b' : 'a';
  std::string garbled = good;
  garbled[40] = '%';
  swarm::Invite forged = Stranger(3600);
  forged.max_uses = 1000;
  const auto join = [&](const std::string& invite, std::vector<std::string> more = {}) {
    std::vector<std::string> all{"join", invite, "--dir", dir};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  Try({{"no invite", join("hello"), 3, {"'hello'", "loom1"}},
       {"the beginning of one", join("loom1"), 3, {"truncated", "5 characters"}},
       {"half of one", join(good.substr(0, good.size() / 2)), 3, {"truncated"}},
       {"one with a typo", join(typo), 3, {"typo", "checksum"}},
       {"one with a strange character", join(garbled), 3, {"character 41"}},
       {"one that somebody changed", join(swarm::EncodeInvite(forged)), 3, {"signature"}},
       {"one of another version", join(OfVersion(good, 2)), 3, {"version 2", "reads 1"}},
       {"one that expired, or a clock that is wrong",
        join(swarm::EncodeInvite(Stranger(-3600))),
        10,
        {"expired at", "it is now", "clock"}},
       {"one to where nobody is", join(good), 8, {"127.0.0.1:1", "connect refused"}},
       {"neither invite nor folder", {"join"}, 3, {"--dir"}},
       {"a folder that is not there", {"join", "--dir", dir}, 4, {dir, "no run"}},
       {"a device that there is not", join(good, {"--device", "abacus"}), 3, {"abacus"}},
       {"too many threads", join(good, {"--threads", "1000"}), 3, {"--threads 1000", "256"}},
       {"no number", join(good, {"--threads", "many"}), 2, {"many"}},
       {"a rate that is none", join(good, {"--max-down", "2X"}), 2, {"2X"}},
       {"nonsense announced", join(good, {"--announce", "my laptop"}), 3, {"announce"}}},
      {Path("story.txt"), Path("run.toml")});
  EXPECT_FALSE(fs::exists(dir)) << "nobody was joined";
}

}  // namespace
}  // namespace loom::e2e

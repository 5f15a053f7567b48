#include "tests/e2e/wrong_ways.h"

#include <fstream>
#include <set>

#include "base/file.h"
#include "crypto/hash.h"
#include "crypto/keys.h"

namespace loom::e2e {
namespace {

namespace fs = std::filesystem;

std::string HashOf(const std::string& file) {
  const auto text = ReadFile(file, 1U << 28);
  return text ? crypto::Sha256(AsBytes(*text)).Hex() : "unreadable";
}

/// Hashes of a file or of all files below a folder, by path; not of those that a look may write.
std::map<std::string, std::string> Fingerprint(const std::string& path) {
  static const std::set<std::string> kLooks{"lock", "status.json", "control.sock"};
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return {{path, HashOf(path)}};
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(path, ignored)) {
    if (!entry.is_regular_file() || kLooks.contains(entry.path().filename().string())) continue;
    out[entry.path().string()] = HashOf(entry.path().string());
  }
  return out;
}

}  // namespace

void WrongWaysTest::Try(const std::vector<Way>& ways, const std::vector<std::string>& kept) {
  std::map<std::string, std::string> before;
  for (const std::string& path : kept) before.merge(Fingerprint(path));
  for (const Way& way : ways) {
    SCOPED_TRACE(way.name);
    const Ended ended =
        Run(way.arguments, 60s, {.arguments = {}, .environment = way.environment, .prefix = {}});
    EXPECT_EQ(ended.code, way.code) << ended.log;
    for (const std::string& text : way.says)
      EXPECT_NE(ended.log.find(text), std::string::npos) << "'" << text << "' in\n" << ended.log;
    EXPECT_NE(ended.log.find("  hint: "), std::string::npos) << ended.log;
    EXPECT_EQ(ended.log.find("check failed"), std::string::npos) << ended.log;
    std::map<std::string, std::string> after;
    for (const std::string& path : kept) after.merge(Fingerprint(path));
    EXPECT_EQ(after, before);
  }
  tried_ += ways.size();
}

void WrongWaysTest::Write(const std::string& name, const std::string& text) const {
  std::ofstream(Path(name), std::ios::binary) << text;
}

std::string WrongWaysTest::Toml(const std::string& name, const std::string& from,
                                const std::string& to) const {
  std::string text = *ReadFile(Path("run.toml"), 1U << 20);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  Write(name, text.replace(at, from.size(), to));
  return Path(name);
}

swarm::Invite WrongWaysTest::Stranger(std::int64_t seconds) {
  swarm::Invite invite;
  invite.run.bytes.fill(std::byte{5});
  invite.expires = SystemClock().WallSeconds() + seconds;
  invite.addresses.push_back({*swarm::ParseAddress("127.0.0.1:1"), {}});
  return *swarm::SignInvite(invite, crypto::SigningKey::Generate());
}

}  // namespace loom::e2e

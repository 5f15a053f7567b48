// Keys, signatures, certificates and hashes, held against published vectors where there are some.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "crypto/certificate.h"
#include "crypto/hash.h"
#include "crypto/keys.h"

namespace loom::crypto {
namespace {

namespace fs = std::filesystem;

class KeyFile : public ::testing::Test {
 protected:
  KeyFile() { fs::create_directories(dir_); }
  ~KeyFile() override { fs::remove_all(dir_); }
  void Write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }

  fs::path dir_ = fs::temp_directory_path() / fmt::format("loom-keys-{}", ::getpid());
  fs::path path_ = dir_ / "peer";
};

SigningKey Rfc8032Key() {
  return SigningKey::FromSeed(
      *Seed::FromHex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"));
}

TEST(Hash, PublishedVector) {
  EXPECT_EQ(Sha256(AsBytes("abc")).Hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256Stream stream;
  stream.Update(AsBytes("a"));
  stream.Update(AsBytes("bc"));
  EXPECT_EQ(stream.Finish(), Sha256(AsBytes("abc")));
}

TEST(Hash, MerkleRootKeepsOddNodesAndOrder) {
  const Hash a = Sha256(AsBytes("a")), b = Sha256(AsBytes("b")), c = Sha256(AsBytes("c"));
  const std::vector<Hash> one{a}, two{a, b}, three{a, b, c}, swapped{b, a, c};
  EXPECT_TRUE(MerkleRoot({}).IsZero());
  EXPECT_EQ(MerkleRoot(one), a);
  EXPECT_EQ(MerkleRoot(three), MerkleRoot(std::vector<Hash>{MerkleRoot(two), c}));
  EXPECT_NE(MerkleRoot(three), MerkleRoot(swapped));
}

TEST(Keys, PublicKeyOfTheRfc8032Vector) {
  const SigningKey key = Rfc8032Key();
  EXPECT_EQ(key.public_key().Hex(),
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
  EXPECT_EQ(key.id(), PeerIdOf(key.public_key()));
}

TEST(Keys, SignatureBindsKeyDomainAndMessage) {
  const SigningKey key = Rfc8032Key();
  const Signature good = key.Sign("vote", AsBytes("round 7"));
  EXPECT_TRUE(Verify(key.public_key(), "vote", AsBytes("round 7"), good));
  EXPECT_FALSE(Verify(key.public_key(), "vote", AsBytes("round 8"), good));
  EXPECT_FALSE(Verify(key.public_key(), "commitment", AsBytes("round 7"), good));
  EXPECT_FALSE(Verify(key.public_key(), "voter", AsBytes("ound 7"), good));
  EXPECT_FALSE(Verify(SigningKey::Generate().public_key(), "vote", AsBytes("round 7"), good));
  for (std::size_t i = 0; i < good.bytes.size(); i += 7) {
    Signature bad = good;
    bad.bytes[i] ^= std::byte{1};
    EXPECT_FALSE(Verify(key.public_key(), "vote", AsBytes("round 7"), bad)) << i;
  }
  EXPECT_FALSE(Verify(PublicKey{}, "vote", AsBytes("round 7"), Signature{}));
}

TEST(Keys, GeneratedKeysDiffer) {
  EXPECT_NE(SigningKey::Generate().id(), SigningKey::Generate().id());
  EXPECT_FALSE(SigningKey::FromSeedBytes(AsBytes("short")).ok());
}

TEST_F(KeyFile, SaveIsPrivateAtomicAndNeverOverwrites) {
  const SigningKey key = SigningKey::Generate();
  ASSERT_TRUE(key.Save(path_).ok());
  struct stat info{};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  EXPECT_EQ(SigningKey::Load(path_)->id(), key.id());
  EXPECT_EQ(SigningKey::Generate().Save(path_).error().code, Code::kConflict);
  EXPECT_EQ(SigningKey::Load(path_)->id(), key.id());
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), {}), 1);
}

TEST_F(KeyFile, SaveIntoAMissingFolderSaysSo) {
  const Status status = SigningKey::Generate().Save(dir_ / "none" / "peer");
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("none"), std::string::npos);
}

TEST_F(KeyFile, LoadsRawAndHexAndRefusesTheRest) {
  const SigningKey key = Rfc8032Key();
  Write(std::string(AsText(key.seed().View())));
  EXPECT_EQ(SigningKey::Load(path_)->id(), key.id());
  Write(key.seed().Hex() + "\n");
  EXPECT_EQ(SigningKey::Load(path_)->id(), key.id());
  for (const std::string& bad :
       {std::string(), std::string("-----BEGIN PRIVATE KEY-----\nMC4\n-----END PRIVATE KEY-----\n"),
        std::string(31, 'x'), std::string(100'000, 'y')}) {
    Write(bad);
    EXPECT_EQ(SigningKey::Load(path_).error().code, Code::kInvalid);
  }
  EXPECT_EQ(SigningKey::Load(dir_ / "absent").error().code, Code::kNotFound);
}

TEST(Certificate, CarriesTheKeyAndNothingElsePasses) {
  const SigningKey key = SigningKey::Generate();
  Bytes der = MakeCertificate(key);
  ASSERT_TRUE(CertificateKey(der).ok());
  EXPECT_EQ(*CertificateKey(der), key.public_key());
  EXPECT_FALSE(CertificateKey({}).ok());
  EXPECT_FALSE(CertificateKey(AsBytes("not a certificate")).ok());
  EXPECT_FALSE(CertificateKey(ByteView(der).first(der.size() / 2)).ok());
  EXPECT_FALSE(CertificateKey(Bytes(1 << 20)).ok());
}

}  // namespace
}  // namespace loom::crypto

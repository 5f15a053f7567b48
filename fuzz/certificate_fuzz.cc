// The certificate that a stranger presents in the TLS handshake.
#include "crypto/certificate.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto key = loom::crypto::CertificateKey(loom::fuzz::View(data, size));
  if (key.ok()) {
    loom::fuzz::Accept();
  } else {
    loom::fuzz::ExpectGoodError(key.error());
  }
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  seeds.Add("self-signed", crypto::MakeCertificate(crypto::SigningKey::FromSeed({})));
}

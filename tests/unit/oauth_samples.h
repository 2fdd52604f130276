/*
 * oauth_samples.h - public keys, and tokens that were signed once with their private halves,
 * which nobody has kept.
 */
#ifndef SMCP_TEST_OAUTH_SAMPLES_H
#define SMCP_TEST_OAUTH_SAMPLES_H

#define SAMPLE_ISSUER   "https://login.example.org"
#define SAMPLE_AUDIENCE "https://sandbox.example.org/mcp"
#define SAMPLE_FROM     1900000000 /* nbf */
#define SAMPLE_UNTIL    2000000000 /* exp */

#define KEY_RSA                                                                                    \
    "{\"kty\":\"RSA\",\"kid\":\"r\",\"use\":\"sig\",\"n\":\"nhb2MamXOWZpPkAS1NthW5Y4VoBPMGHzuucE_" \
    "DrptaqO4J_4"                                                                                  \
    "3tEajyiQFoV507KTCBOsPKnU0e3VgkaVwrBMgwXMlLRe6cWdV3zoNgi1sZt8j_P45dFYOnGhJScriFFE7mDX5Vsd"     \
    "jFWi5q0uujc_xXOlBeCw4zL27rdkyHP5YdesH7C2oDeK2zHXDUszsRDZeZJ5GBuTTary0T8U_LFQ0AiErb2pNM6p"     \
    "ZF44bhjT65RGIWO93R2gXl6aQUZ5oD72_fZn0TuuuhqeCDnLHHuFoS4C_VCHEWtekDy5fyWfuUhI0PJGtRWg0LUV"     \
    "gwwFUtsvRDGe5U4mVd3zUO5LdLwM6Q\",\"e\":\"AQAB\"}"

#define KEY_P256_REST                                                                              \
    "\"kty\":\"EC\",\"kid\":\"a\",\"crv\":\"P-256\",\"x\":"                                        \
    "\"g3aXBJ6hEKFTJgRSL8hBTJRFqv5jfLHnA5zN0htNdy0\",\"y"                                          \
    "\":\"31P91HIyeGDy0Q2BbBjWrpRPIFTPjblBcEITgUL2v3g\"}"

#define KEY_P256 "{" KEY_P256_REST

#define KEY_P384                                                                                   \
    "{\"kty\":\"EC\",\"kid\":\"b\",\"crv\":\"P-384\",\"x\":"                                       \
    "\"O8SES7d1eMx6M4VmBR1VOaJ8m5CIMB0GVXERaRx8C-bzWV0"                                            \
    "jE-zX4VrtUXIcSXVg\",\"y\":\"70so6zKpI8kWDUdA977RZfHZlXL-MHTc8gBcU1ychM66I5o7K-79kKxGMbn46XaT" \
    "\"}"

#define SAMPLE_KEYS "{\"keys\":[" KEY_RSA "," KEY_P256 "," KEY_P384 "]}"

#define TOKEN_RS256                                                                                \
    "eyJhbGciOiJSUzI1NiIsImtpZCI6InIiLCJ0eXAiOiJhdCtqd3QifQ.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4Y"     \
    "W1wbGUub3JnIiwiYXVkIjoiaHR0cHM6Ly9zYW5kYm94LmV4YW1wbGUub3JnL21jcCIsImV4cCI6MjAwMDAwMDAwM"     \
    "CwibmJmIjoxOTAwMDAwMDAwLCJzY29wZSI6InNhbmRib3g6dXNlIG1haWwifQ.Tk9wXDT5VMPg6KvxP55NKeppQc"     \
    "Vlxz7BXSzMG55N0bWZ7MqLFmKAvibvZysnJ6j-uS3N4IDdQTbnNep3Fq54hDrSzd3OxRmaWzCWLTSoFWuPfcYvrZ"     \
    "cGaHsmU9j9tBXRjawUvXJUHRbklJ0L35cAMq1NVK3hBu2hghSvhUI37V-i4NJnAHFJDxI8wFms7vR39NV_S-RZ_U"     \
    "U9ETDDNZ4HfYGNDZleniBtotO77de9mhXkgKbZPWxYUPp59GyUZf_JKV-voQE10J_FHnVmBLimL1hCflfr0YWyZJ"     \
    "Zf8SgrbCtdQb1tqZlXnkfaBuXaxH6uEb6h-wixod5TqmuXj7771g"

#define TOKEN_PS256                                                                                \
    "eyJhbGciOiJQUzI1NiIsImtpZCI6InIiLCJ0eXAiOiJhdCtqd3QifQ.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4Y"     \
    "W1wbGUub3JnIiwiYXVkIjoiaHR0cHM6Ly9zYW5kYm94LmV4YW1wbGUub3JnL21jcCIsImV4cCI6MjAwMDAwMDAwM"     \
    "CwibmJmIjoxOTAwMDAwMDAwLCJzY29wZSI6InNhbmRib3g6dXNlIG1haWwifQ.c_klCj2r2L7mgXvUltXAnrWTsM"     \
    "mqxRpO0ELY87v0lSAB9DP3uZU9fo4xAM2-Q8oHyFMMi9baUQU-9F2Le2D8JAbxuzYQbGonBJ3x9sDlIcKmu6D_Xn"     \
    "q1gF_UpAAPU_WJCRpkZWYBFDt6rOp_9aSDLBi6N2z3c0TJb9au7Z8RGRKDm39t2mJlnbtbnZkLmCJpmA3oDd4ryD"     \
    "b_Z0NnM0LggZZBFtzH3e9WG8PRRvbWiH1NXVL4-44rk7NRwmBaDSQHZHxI-v15ciTsQOLp0sLu1i_uquYH5atBqN"     \
    "2xyPLQ6Kx8qaLwk3qyAzKpXnN8WSbQtjdQV62R6q2pptUafjABPQ"

#define TOKEN_ES256                                                                                \
    "eyJhbGciOiJFUzI1NiIsImtpZCI6ImEiLCJ0eXAiOiJhdCtqd3QifQ.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4Y"     \
    "W1wbGUub3JnIiwiYXVkIjoiaHR0cHM6Ly9zYW5kYm94LmV4YW1wbGUub3JnL21jcCIsImV4cCI6MjAwMDAwMDAwM"     \
    "CwibmJmIjoxOTAwMDAwMDAwLCJzY29wZSI6InNhbmRib3g6dXNlIG1haWwifQ.NK7HbAfb7pXVtdq5SiAtnIi_c7"     \
    "dRAnhIz220HQFGXMSp4MKaZ79zCcZasFtN7QaJW8KlW-ffMFklVuCE-fDvEA"

#define TOKEN_ES384                                                                                \
    "eyJhbGciOiJFUzM4NCIsImtpZCI6ImIiLCJ0eXAiOiJhdCtqd3QifQ.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4Y"     \
    "W1wbGUub3JnIiwiYXVkIjoiaHR0cHM6Ly9zYW5kYm94LmV4YW1wbGUub3JnL21jcCIsImV4cCI6MjAwMDAwMDAwM"     \
    "CwibmJmIjoxOTAwMDAwMDAwLCJzY29wZSI6InNhbmRib3g6dXNlIG1haWwifQ.MuLg80_-TIPu3_ntPm8k3Uvcv2"     \
    "OdxSRj9-Na3jlta4ixUFE9wdsTjJ2-lZqMjJj3qSo03jUqGG7p1VH4qadRj-35cwkeLlQLI65wAMbch0GmH1D3AG"     \
    "V3DFiaQueH1-s6"

#endif

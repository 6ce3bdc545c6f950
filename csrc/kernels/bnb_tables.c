/* The codebooks of bitsandbytes. Written by tools/derive_bnb.py: do not edit. */
#include "bnb_tables.h"
#include <math.h>

/* clang-format off */

const amn_codebook4 amn_nf4 = {
    {
        -0x1p+0f, -0x1.647362p-1f, -0x1.0cd66p-1f, -0x1.94654p-2f, -0x1.23449ap-2f, -0x1.7a6a7ep-3f,
        -0x1.74f0e2p-4f, 0x0p+0f, 0x1.45f5fep-4f, 0x1.4995c6p-3f, 0x1.f809bap-3f, 0x1.5a0674p-2f,
        0x1.c3497p-2f, 0x1.200f56p-1f, 0x1.722766p-1f, 0x1p+0f,
    },
    {
        -0x1p+0f, -0x1.647362p-1f, -0x1.0cd66p-1f, -0x1.94654p-2f, -0x1.23449ap-2f, -0x1.7a6a7ep-3f,
        -0x1.74f0e2p-4f, 0x0p+0f, 0x1.45f5fep-4f, 0x1.4995c6p-3f, 0x1.f809bap-3f, 0x1.5a0674p-2f,
        0x1.c3497p-2f, 0x1.200f56p-1f, 0x1.722766p-1f, 0x1p+0f,
    },
    {
        -0x1.b239bp-1f, -0x1.38a4ep-1f, -0x1.d709p-2f, -0x1.5bd4ecp-2f, -0x1.e079d8p-3f,
        -0x1.1a7178p-3f, -0x1.74f0e2p-5f, 0x1.45f5fep-5f, 0x1.ec90c4p-4f, 0x1.a0cfcp-3f,
        0x1.2b05a8p-2f, 0x1.8ea7f2p-2f, 0x1.00da08p-1f, 0x1.491b5ep-1f, 0x1.b913b4p-1f,
    },
    {
      {
        0x1.45f5fep-5f, 0x1.45f5fep-5f, 0x1.45f5fep-5f, 0x1.45f5fep-5f, 0x1.45f5fep-5f,
        0x1.45f5fep-5f, 0x1.45f5fep-5f, 0x1.45f5fep-5f,
      },
      {
        -0x1.5bd4ecp-2f, 0x1.8ea7f2p-2f, -0x1.5bd4ecp-2f, 0x1.8ea7f2p-2f, -0x1.5bd4ecp-2f,
        0x1.8ea7f2p-2f, -0x1.5bd4ecp-2f, 0x1.8ea7f2p-2f,
      },
      {
        -0x1.38a4ep-1f, -0x1.1a7178p-3f, 0x1.a0cfcp-3f, 0x1.491b5ep-1f, -0x1.38a4ep-1f,
        -0x1.1a7178p-3f, 0x1.a0cfcp-3f, 0x1.491b5ep-1f,
      },
      {
        -0x1.b239bp-1f, -0x1.d709p-2f, -0x1.e079d8p-3f, -0x1.74f0e2p-5f, 0x1.ec90c4p-4f,
        0x1.2b05a8p-2f, 0x1.00da08p-1f, 0x1.b913b4p-1f,
      },
    },
    {
        0x1.b23994p-1f, 0x1.e079bap-3f, 0x1.ec90a6p-4f, 0x1.00d9f8p-1f, 0x1.38a4ccp-1f,
        0x1.1a7166p-3f, 0x1.a0cfa6p-3f, 0x1.491b4ap-1f, 0x1.5bd4d6p-2f, 0x1.45f5eap-5f,
        0x1.8ea7dap-2f, 0x1.ffffep-2f, 0x1.d708e2p-2f, 0x1.74f0cap-5f, 0x1.2b0596p-2f,
        0x1.b91398p-1f,
    },
    {
        0x1.b239aep-1f, 0x1.e079d6p-3f, 0x1.ec90c4p-4f, 0x1.00da08p-1f, 0x1.38a4dep-1f,
        0x1.1a7176p-3f, 0x1.a0cfcp-3f, 0x1.491b5ep-1f, 0x1.5bd4eap-2f, 0x1.45f5fep-5f,
        0x1.8ea7f2p-2f, 0x1p-1f, 0x1.d708fep-2f, 0x1.74f0ep-5f, 0x1.2b05a8p-2f, 0x1.b913b4p-1f,
    },
    {
        0xffffffff, 0xffffffff, 0, 0, 0xffffffff, 0xffffffff, 0, 0, 0xffffffff, 0, 0, 0, 0xffffffff,
        0xffffffff, 0, 0,
    },
    {
        0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff,
        0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0, 0xffffffff, 0xffffffff, 0xffffffff,
        0xffffffff,
    },
    {
        0x1.45f5fep-5f, 0x1.ec90c4p-4f, INFINITY, 0x1.a0cfcp-3f, 0x1.2b05a8p-2f, INFINITY,
        0x1.8ea7f2p-2f, 0x1.00da08p-1f, INFINITY, 0x1.491b5ep-1f, INFINITY, INFINITY, INFINITY,
        0x1.b913b4p-1f, INFINITY, INFINITY, INFINITY, INFINITY, -0x1.b239bp-1f, INFINITY, INFINITY,
        INFINITY, -0x1.38a4ep-1f, INFINITY, -0x1.d709p-2f, INFINITY, -0x1.5bd4ecp-2f, INFINITY,
        -0x1.e079d8p-3f, -0x1.1a7178p-3f, INFINITY, -0x1.74f0e2p-5f,
    },
    {
        7, 8, 9, 9, 10, 11, 11, 12, 13, 13, 14, 14, 14, 14, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15,
        15, 15, 15, 15, 15, 15, 15, 15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
        1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 6,
    },
    0xfbfc,
    {
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
    },
};

const amn_codebook4 amn_fp4 = {
    {
        0x0p+0f, 0x1.555556p-8f, 0x1.555556p-1f, 0x1p+0f, 0x1.555556p-2f, 0x1p-1f, 0x1.555556p-3f,
        0x1p-2f, 0x0p+0f, -0x1.555556p-8f, -0x1.555556p-1f, -0x1p+0f, -0x1.555556p-2f, -0x1p-1f,
        -0x1.555556p-3f, -0x1p-2f,
    },
    {
        -0x1p+0f, -0x1.555556p-1f, -0x1p-1f, -0x1.555556p-2f, -0x1p-2f, -0x1.555556p-3f,
        -0x1.555556p-8f, 0x0p+0f, 0x0p+0f, 0x1.555556p-8f, 0x1.555556p-3f, 0x1p-2f, 0x1.555556p-2f,
        0x1p-1f, 0x1.555556p-1f, 0x1p+0f,
    },
    {
        -0x1.aaaaacp-1f, -0x1.2aaaacp-1f, -0x1.aaaaacp-2f, -0x1.2aaaacp-2f, -0x1.aaaaacp-3f,
        -0x1.6p-4f, -0x1.555556p-9f, 0x0p+0f, 0x1.555556p-9f, 0x1.6p-4f, 0x1.aaaaacp-3f,
        0x1.2aaaacp-2f, 0x1.aaaaacp-2f, 0x1.2aaaacp-1f, 0x1.aaaaacp-1f,
    },
    {
      {
        0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f,
      },
      {
        -0x1.2aaaacp-2f, 0x1.2aaaacp-2f, -0x1.2aaaacp-2f, 0x1.2aaaacp-2f, -0x1.2aaaacp-2f,
        0x1.2aaaacp-2f, -0x1.2aaaacp-2f, 0x1.2aaaacp-2f,
      },
      {
        -0x1.2aaaacp-1f, -0x1.6p-4f, 0x1.6p-4f, 0x1.2aaaacp-1f, -0x1.2aaaacp-1f, -0x1.6p-4f,
        0x1.6p-4f, 0x1.2aaaacp-1f,
      },
      {
        -0x1.aaaaacp-1f, -0x1.aaaaacp-2f, -0x1.aaaaacp-3f, -0x1.555556p-9f, 0x1.555556p-9f,
        0x1.aaaaacp-3f, 0x1.aaaaacp-2f, 0x1.aaaaacp-1f,
      },
    },
    {
        0x1.aaaa92p-1f, 0x1.aaaa92p-3f, 0x1.55554p-9f, 0x1.aaaa92p-2f, 0x1.2aaa9ap-1f,
        0x1.5fffeap-4f, 0x1.5fffeap-4f, 0x1.2aaa9ap-1f, 0x1.2aaa9ap-2f, 0x1.ffffep-2f,
        0x1.2aaa9ap-2f, 0x1.ffffep-2f, 0x1.aaaa92p-2f, 0x1.55554p-9f, 0x1.aaaa92p-3f,
        0x1.aaaa92p-1f,
    },
    {
        0x1.aaaaaap-1f, 0x1.aaaaaap-3f, 0x1.555556p-9f, 0x1.aaaaacp-2f, 0x1.2aaaaap-1f,
        0x1.5ffffep-4f, 0x1.6p-4f, 0x1.2aaaacp-1f, 0x1.2aaaaap-2f, 0x1p-1f, 0x1.2aaaacp-2f, 0x1p-1f,
        0x1.aaaaaap-2f, 0x1.555554p-9f, 0x1.aaaaacp-3f, 0x1.aaaaacp-1f,
    },
    {
        0xffffffff, 0xffffffff, 0, 0, 0xffffffff, 0xffffffff, 0, 0, 0xffffffff, 0, 0, 0, 0xffffffff,
        0xffffffff, 0, 0,
    },
    {
        0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff,
        0xffffffff, 0xffffffff, 0, 0xffffffff, 0, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff,
    },
    {
        0x1.555556p-9f, 0x1.6p-4f, INFINITY, 0x1.aaaaacp-3f, 0x1.2aaaacp-2f, INFINITY,
        0x1.aaaaacp-2f, INFINITY, INFINITY, 0x1.2aaaacp-1f, INFINITY, INFINITY, 0x1.aaaaacp-1f,
        INFINITY, INFINITY, INFINITY, INFINITY, INFINITY, INFINITY, -0x1.aaaaacp-1f, INFINITY,
        INFINITY, -0x1.2aaaacp-1f, INFINITY, INFINITY, -0x1.aaaaacp-2f, INFINITY, -0x1.2aaaacp-2f,
        -0x1.aaaaacp-3f, INFINITY, -0x1.6p-4f, -0x1.555556p-9f,
    },
    {
        7, 8, 9, 9, 10, 11, 11, 12, 12, 12, 13, 13, 13, 14, 14, 14, 14, 14, 14, 14, 14, 14, 14, 14,
        14, 14, 14, 14, 14, 14, 14, 14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 5, 6,
    },
    0xfbfc,
    {
        11, 10, 13, 12, 15, 14, 9, 0, 8, 1, 6, 7, 4, 5, 2, 3,
    },
};

const float amn_dynamic[256] = {
  -0x1.fc6666p-1f, -0x1.f53334p-1f, -0x1.eep-1f, -0x1.e6ccccp-1f, -0x1.df999ap-1f, -0x1.d86666p-1f,
  -0x1.d13334p-1f, -0x1.cap-1f, -0x1.c2ccccp-1f, -0x1.bb999ap-1f, -0x1.b46666p-1f, -0x1.ad3334p-1f,
  -0x1.a6p-1f, -0x1.9eccccp-1f, -0x1.97999ap-1f, -0x1.906666p-1f, -0x1.893334p-1f, -0x1.82p-1f,
  -0x1.7accccp-1f, -0x1.73999ap-1f, -0x1.6c6668p-1f, -0x1.653334p-1f, -0x1.5ep-1f, -0x1.56ccccp-1f,
  -0x1.4f999ap-1f, -0x1.486668p-1f, -0x1.413334p-1f, -0x1.3ap-1f, -0x1.32ccccp-1f, -0x1.2b999ap-1f,
  -0x1.246668p-1f, -0x1.1d3334p-1f, -0x1.16p-1f, -0x1.0eccccp-1f, -0x1.079998p-1f, -0x1.006666p-1f,
  -0x1.f26664p-2f, -0x1.e4p-2f, -0x1.d59998p-2f, -0x1.c73334p-2f, -0x1.b8ccccp-2f, -0x1.aa6666p-2f,
  -0x1.9cp-2f, -0x1.8d9998p-2f, -0x1.7f3334p-2f, -0x1.70ccccp-2f, -0x1.626666p-2f, -0x1.54p-2f,
  -0x1.459998p-2f, -0x1.373334p-2f, -0x1.28ccccp-2f, -0x1.1a6668p-2f, -0x1.0cp-2f, -0x1.fb3332p-3f,
  -0x1.de6666p-3f, -0x1.c1999ap-3f, -0x1.a4ccccp-3f, -0x1.88p-3f, -0x1.6b3334p-3f, -0x1.4e6666p-3f,
  -0x1.31999ap-3f, -0x1.14ccccp-3f, -0x1.fp-4f, -0x1.b66668p-4f, -0x1.93d70ap-4f, -0x1.8851eep-4f,
  -0x1.7ccccep-4f, -0x1.7147aep-4f, -0x1.65c29p-4f, -0x1.5a3d7p-4f, -0x1.4eb854p-4f,
  -0x1.433334p-4f, -0x1.37ae14p-4f, -0x1.2c28f6p-4f, -0x1.20a3d6p-4f, -0x1.151ebap-4f,
  -0x1.09999ap-4f, -0x1.fc28f6p-5f, -0x1.e51ebap-5f, -0x1.ce147ap-5f, -0x1.b70a3ep-5f, -0x1.ap-5f,
  -0x1.88f5c2p-5f, -0x1.71eb86p-5f, -0x1.5ae146p-5f, -0x1.43d70ap-5f, -0x1.2ccccep-5f,
  -0x1.15c29p-5f, -0x1.fd70a4p-6f, -0x1.cf5c2ap-6f, -0x1.a147aep-6f, -0x1.733334p-6f,
  -0x1.451ebap-6f, -0x1.170a3ep-6f, -0x1.d1eb86p-7f, -0x1.75c29p-7f, -0x1.3e76c8p-7f,
  -0x1.2c083p-7f, -0x1.19999ap-7f, -0x1.072b02p-7f, -0x1.e978d4p-8f, -0x1.c49ba6p-8f,
  -0x1.9fbe76p-8f, -0x1.7ae148p-8f, -0x1.56041ap-8f, -0x1.3126e8p-8f, -0x1.0c49bap-8f,
  -0x1.ced914p-9f, -0x1.851eb8p-9f, -0x1.3b645ap-9f, -0x1.e353f8p-10f, -0x1.4fdf3ap-10f,
  -0x1.eecbfep-11f, -0x1.b3d07cp-11f, -0x1.78d5p-11f, -0x1.3dd982p-11f, -0x1.02de02p-11f,
  -0x1.8fc506p-12f, -0x1.19ce0ap-12f, -0x1.47ae16p-13f, -0x1.743e96p-14f, -0x1.15df66p-14f,
  -0x1.6f0068p-15f, -0x1.64840cp-16f, -0x1.040bfep-17f, -0x1.b43528p-19f, -0x1.27476ep-21f, 0x0p+0f,
  0x1.27476ep-21f, 0x1.b43528p-19f, 0x1.040bfep-17f, 0x1.64840cp-16f, 0x1.6f0068p-15f,
  0x1.15df66p-14f, 0x1.743e96p-14f, 0x1.47ae16p-13f, 0x1.19ce0ap-12f, 0x1.8fc506p-12f,
  0x1.02de02p-11f, 0x1.3dd982p-11f, 0x1.78d5p-11f, 0x1.b3d07cp-11f, 0x1.eecbfep-11f,
  0x1.4fdf3ap-10f, 0x1.e353f8p-10f, 0x1.3b645ap-9f, 0x1.851eb8p-9f, 0x1.ced914p-9f, 0x1.0c49bap-8f,
  0x1.3126e8p-8f, 0x1.56041ap-8f, 0x1.7ae148p-8f, 0x1.9fbe76p-8f, 0x1.c49ba6p-8f, 0x1.e978d4p-8f,
  0x1.072b02p-7f, 0x1.19999ap-7f, 0x1.2c083p-7f, 0x1.3e76c8p-7f, 0x1.75c29p-7f, 0x1.d1eb86p-7f,
  0x1.170a3ep-6f, 0x1.451ebap-6f, 0x1.733334p-6f, 0x1.a147aep-6f, 0x1.cf5c2ap-6f, 0x1.fd70a4p-6f,
  0x1.15c29p-5f, 0x1.2ccccep-5f, 0x1.43d70ap-5f, 0x1.5ae146p-5f, 0x1.71eb86p-5f, 0x1.88f5c2p-5f,
  0x1.ap-5f, 0x1.b70a3ep-5f, 0x1.ce147ap-5f, 0x1.e51ebap-5f, 0x1.fc28f6p-5f, 0x1.09999ap-4f,
  0x1.151ebap-4f, 0x1.20a3d6p-4f, 0x1.2c28f6p-4f, 0x1.37ae14p-4f, 0x1.433334p-4f, 0x1.4eb854p-4f,
  0x1.5a3d7p-4f, 0x1.65c29p-4f, 0x1.7147aep-4f, 0x1.7ccccep-4f, 0x1.8851eep-4f, 0x1.93d70ap-4f,
  0x1.b66668p-4f, 0x1.fp-4f, 0x1.14ccccp-3f, 0x1.31999ap-3f, 0x1.4e6666p-3f, 0x1.6b3334p-3f,
  0x1.88p-3f, 0x1.a4ccccp-3f, 0x1.c1999ap-3f, 0x1.de6666p-3f, 0x1.fb3332p-3f, 0x1.0cp-2f,
  0x1.1a6668p-2f, 0x1.28ccccp-2f, 0x1.373334p-2f, 0x1.459998p-2f, 0x1.54p-2f, 0x1.626666p-2f,
  0x1.70ccccp-2f, 0x1.7f3334p-2f, 0x1.8d9998p-2f, 0x1.9cp-2f, 0x1.aa6666p-2f, 0x1.b8ccccp-2f,
  0x1.c73334p-2f, 0x1.d59998p-2f, 0x1.e4p-2f, 0x1.f26664p-2f, 0x1.006666p-1f, 0x1.079998p-1f,
  0x1.0eccccp-1f, 0x1.16p-1f, 0x1.1d3334p-1f, 0x1.246668p-1f, 0x1.2b999ap-1f, 0x1.32ccccp-1f,
  0x1.3ap-1f, 0x1.413334p-1f, 0x1.486668p-1f, 0x1.4f999ap-1f, 0x1.56ccccp-1f, 0x1.5ep-1f,
  0x1.653334p-1f, 0x1.6c6668p-1f, 0x1.73999ap-1f, 0x1.7accccp-1f, 0x1.82p-1f, 0x1.893334p-1f,
  0x1.906666p-1f, 0x1.97999ap-1f, 0x1.9eccccp-1f, 0x1.a6p-1f, 0x1.ad3334p-1f, 0x1.b46666p-1f,
  0x1.bb999ap-1f, 0x1.c2ccccp-1f, 0x1.cap-1f, 0x1.d13334p-1f, 0x1.d86666p-1f, 0x1.df999ap-1f,
  0x1.e6ccccp-1f, 0x1.eep-1f, 0x1.f53334p-1f, 0x1.fc6666p-1f, 0x1p+0f,
};

const uint16_t amn_dynamic_begins[255] = {
  461, 922, 1383, 1844, 2304, 2765, 3226, 3687, 4148, 4608, 5069, 5530, 5991, 6452, 6912, 7373,
  7834, 8295, 8756, 9216, 9677, 10138, 10599, 11060, 11520, 11981, 12442, 12903, 13363, 13824,
  14285, 14746, 15207, 15667, 16128, 16589, 17050, 17511, 17971, 18432, 18893, 19354, 19815, 20275,
  20736, 21197, 21658, 22119, 22579, 23040, 23501, 23962, 24423, 24883, 25344, 25805, 26266, 26726,
  27187, 27648, 28109, 28570, 29030, 29399, 29583, 29676, 29768, 29860, 29952, 30044, 30136, 30229,
  30321, 30413, 30505, 30597, 30689, 30781, 30874, 30966, 31058, 31150, 31242, 31334, 31427, 31519,
  31611, 31703, 31795, 31887, 31980, 32072, 32164, 32256, 32348, 32422, 32459, 32477, 32496, 32514,
  32532, 32551, 32569, 32588, 32606, 32625, 32643, 32662, 32680, 32698, 32717, 32732, 32739, 32743,
  32746, 32750, 32754, 32757, 32761, 32764, 32765, 32766, 32767, 32768, 32768, 32768, 32768, 32768,
  32768, 32768, 32768, 32769, 32770, 32771, 32772, 32775, 32779, 32782, 32786, 32790, 32793, 32797,
  32804, 32819, 32838, 32856, 32874, 32893, 32911, 32930, 32948, 32967, 32985, 33004, 33022, 33040,
  33059, 33077, 33114, 33188, 33280, 33372, 33464, 33556, 33649, 33741, 33833, 33925, 34017, 34109,
  34202, 34294, 34386, 34478, 34570, 34662, 34755, 34847, 34939, 35031, 35123, 35215, 35307, 35400,
  35492, 35584, 35676, 35768, 35860, 35953, 36137, 36506, 36966, 37427, 37888, 38349, 38810, 39270,
  39731, 40192, 40653, 41113, 41574, 42035, 42496, 42957, 43417, 43878, 44339, 44800, 45261, 45721,
  46182, 46643, 47104, 47565, 48025, 48486, 48947, 49408, 49869, 50329, 50790, 51251, 51712, 52173,
  52633, 53094, 53555, 54016, 54476, 54937, 55398, 55859, 56320, 56780, 57241, 57702, 58163, 58624,
  59084, 59545, 60006, 60467, 60928, 61388, 61849, 62310, 62771, 63232, 63692, 64153, 64614, 65075,
  65420,
};

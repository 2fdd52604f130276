/*
 * embed.h - a file of the source tree as bytes in the program.
 *
 * EMBED(name, "path") defines `name` (a NUL-terminated char array) and `name_end`; the path counts
 * from the root of the tree, where make runs.
 */
#ifndef SMCP_EMBED_H
#define SMCP_EMBED_H

#define EMBED(name, path)                                                                          \
    __asm__(".pushsection .rodata\n.balign 1\n.type " #name ", @object\n" #name ":\n.incbin "      \
            "\"" path "\"\n" #name "_end:\n.byte 0\n.size " #name ", . - " #name "\n.popsection"); \
    extern const char name[] __attribute__((visibility("hidden")));                                \
    extern const char name##_end[] __attribute__((visibility("hidden")))

#endif

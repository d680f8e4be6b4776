/* The releases that have a table. Made by bazel/dialect.py: do not edit. */
#define RC__RELEASES(X) X(2_35_0) X(2_60_0)
#define RC__RELEASES_TEXT "2.35.0, 2.60.0"

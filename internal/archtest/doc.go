// Package archtest holds no product code: its tests read every Go file of the module and fail where one breaks a rule
// of ARCHITECTURE.md. The rules are who may import whom (table_test.go), a core without clock, chance, goroutines and
// input or output (pure_test.go), and the shape of packages, files and functions (shape_test.go).
//
// Each rule is also run over small planted sources (testdata/*.txtar), so a rule that stops biting fails too.
// The cost grows with the source code and not with any cluster: about a second in all.
package archtest
